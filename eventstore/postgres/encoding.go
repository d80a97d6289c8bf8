package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// checkPool refuses a pool whose connections would store texts as something else than what is given: the driver sends
// UTF-8, which a connection or a database in another encoding takes for other characters without an error.
func checkPool(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return errors.New("postgres: pool is nil: pass the pool of the store's database")
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("postgres: connect: %w", err)
	}
	defer conn.Release()
	for parameter, remedy := range map[string]string{
		"server_encoding": "create the database with ENCODING 'UTF8'",
		"client_encoding": "leave it out of the connection's settings and those of the role",
	} {
		// A pooler may not pass it on.
		if got := conn.Conn().PgConn().ParameterStatus(parameter); got != "" && got != "UTF8" {
			return fmt.Errorf("postgres: %s is %s, not UTF8: %s", parameter, got, remedy)
		}
	}
	return nil
}
