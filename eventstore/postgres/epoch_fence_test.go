package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore/postgres"
)

// TestANewEpochMovesTheFences: a restore takes the fences of consumers back to what a process that was cut off before it
// may still hold. With a new epoch they begin elsewhere, and elsewhere again after another restore of the same backup.
func TestANewEpochMovesTheFences(t *testing.T) {
	t.Parallel()
	_, pool := freshStore(t, postgres.Config{})
	mustExec(t, pool, `INSERT INTO daybook.consumers (consumer, version, kind) VALUES ('frozen', 1, 'projection')`)
	mustExec(t, pool, `INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition, epoch, floor) VALUES ('frozen', 1, 0, 0, 63, 5, 10)`)
	commit := func() error {
		_, err := pool.Exec(t.Context(), `SELECT daybook.commit_batch('frozen', 1, 0, 5, 0, 10, 10, '{}', '{}', '{}', '{}', false)`)
		return err
	}
	seen := map[int64]bool{5: true}
	for _, action := range []postgres.EpochAction{postgres.EpochKeep, postgres.EpochNew, postgres.EpochNew} {
		mustExec(t, pool, `UPDATE daybook.segments SET epoch = 5 WHERE consumer = 'frozen'`) // as the backup has it
		if _, err := postgres.SetEpoch(t.Context(), pool, "", action); err != nil {
			t.Fatal(err)
		}
		var epoch int64
		if err := pool.QueryRow(t.Context(), `SELECT epoch FROM daybook.segments WHERE consumer = 'frozen'`).Scan(&epoch); err != nil {
			t.Fatal(err)
		}
		err := commit()
		var pg *pgconn.PgError
		switch {
		case action == postgres.EpochKeep && (err != nil || epoch != 5):
			t.Errorf("a faithful move changes the fence to %d: %v", epoch, err)
		case action == postgres.EpochNew && (seen[epoch] || !errors.As(err, &pg) || pg.Code != "DB002"):
			t.Errorf("the fence is %d, and a process from before commits with %v", epoch, err)
		}
		seen[epoch] = true
	}
}
