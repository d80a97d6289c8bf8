package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
)

// logLines keeps what a store logs.
type logLines struct{ livetest.Lines }

func (l *logLines) has(text string) func() bool {
	return func() bool { return strings.Contains(l.String(), text) }
}

func (l *logLines) config() postgres.Config {
	return postgres.Config{Logger: l.Logger()}
}

// R-OG06: a head that is held for long is logged with its holder, once, and so is its end.
func TestHeldHeadIsLogged(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["application_name"] = "nightly job"
	}))
	var lines logLines
	store := openStore(t, pool, lines.config())
	tx := openAppend(t, store, pool, "slow")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.WatchHead(ctx, time.Millisecond, time.Nanosecond) }()
	await(t, "a line with the holder", lines.has("nightly job"))
	for range 20 { // looks again and again meanwhile
		if _, _, err := store.Blocker(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	mustCommit(t, tx)
	await(t, "a line at the end", lines.has("no longer held"))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := strings.Count(lines.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want one for each change of state:\n%s", n, lines.String())
	}
}

// Lines are changes of state: none per append, and one each for the loss of the listening connection and its return.
func TestLogLinesAreChangesOfState(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	var lines logLines
	store := openStore(t, pool, lines.config())
	stop := runStore(t, store)
	listening(t, store)
	const secret = "payload-of-nobody's-business"
	for range 50 {
		mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent(secret)))
	}
	if got := lines.String(); got != "" {
		t.Errorf("appends were logged:\n%s", got)
	}
	const killSQL = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`
	if n := value[int](t, pool, killSQL); n != 1 {
		t.Fatalf("killed %d listeners", n)
	}
	await(t, "a line at the return", lines.has("listening for notifications again"))
	stop()
	got := lines.String()
	if n := strings.Count(got, "\n"); n != 2 || !strings.Contains(got, "interrupted") || strings.Contains(got, secret) {
		t.Errorf("%d lines, want the interruption and its end:\n%s", n, got)
	}
}
