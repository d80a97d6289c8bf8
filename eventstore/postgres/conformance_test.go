package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/eventstoretest"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

var features = eventstoretest.Features{
	Log:  func(s eventstore.Store) eventstoretest.Log { return s.(*postgres.Store).Log() },
	Once: true,
}

func TestConformance(t *testing.T) {
	t.Parallel()
	eventstoretest.Run(t, func(t testing.TB) eventstore.Store {
		return openStore(t, postgrestest.New(t), postgres.Config{})
	}, features)
}

func TestConformanceOfARoleWithoutDDLRights(t *testing.T) {
	t.Parallel()
	eventstoretest.Run(t, func(t testing.TB) eventstore.Store {
		return openStore(t, rolePool(t, postgrestest.New(t), "daybook"), postgres.Config{})
	}, features)
}

// R-PG04: the suite through a pooler in transaction mode.
func TestConformanceBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	eventstoretest.Run(t, func(t testing.TB) eventstore.Store {
		pool := pooled(t, postgrestest.New(t), 4, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		})
		return openStore(t, pool, postgres.Config{TransactionPooler: true})
	}, features)
}
