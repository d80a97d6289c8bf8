package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// losing cuts a connection instead of passing on the n-th "ready, no transaction" from when left was set to n.
type losing struct {
	net.Conn
	left *atomic.Int64
}

func (c *losing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && bytes.HasSuffix(p[:n], []byte("Z\x00\x00\x00\x05I")) && c.left.Load() > 0 && c.left.Add(-1) == 0 {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Conn.Close())
	}
	return n, err
}

func losingPool(t *testing.T) (pool *pgxpool.Pool, left *atomic.Int64) {
	t.Helper()
	left = new(atomic.Int64)
	return postgrestest.New(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &losing{Conn: conn, left: left}, nil
		}
	})), left
}

// An append whose answer was lost is sent again, and the connection is lost a second time, while the store looks whether
// the conflict that it met is its own events. That is no conflict, which would prove that nothing was stored.
func TestAConflictThatCannotBeExplainedIsNone(t *testing.T) {
	t.Parallel()
	pool, left := losingPool(t)
	store := openStore(t, pool, postgres.Config{MaxConns: 1})
	met := 0
	for n := range int64(8) { // what is sent for the explanation is the store's affair: cut at each place
		w := eventstore.To(newStream("s"), eventstore.NoStream, ownEvent("1"))
		mustAppend(t, store, w)
		left.Store(n + 1)
		result, err := store.Append(t.Context(), w)
		left.Store(0)
		switch {
		case errors.Is(err, eventstore.ErrConflict) || errors.Is(err, eventstore.ErrStreamClosed):
			t.Errorf("cut at answer %d: %v, though the events are stored", n+1, err)
		case err != nil:
			met++
		case !result.Repeated:
			t.Errorf("cut at answer %d: the repeat was not recognised", n+1)
		}
	}
	if met < 2 {
		t.Errorf("%d appends failed: the test shows nothing", met)
	}
}

// A stream that was closed between an append whose answer was lost and its repeat.
func TestRepeatOnAClosedStream(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	w := eventstore.To(newStream("s"), eventstore.NoStream, ownEvent("1"), ownEvent("2"))
	first := mustAppend(t, store, w)
	mustExec(t, pool, `UPDATE daybook.streams SET closed = true WHERE stream_id = $1`, w.Stream.String())
	if again := mustAppend(t, store, w); !again.Repeated || again.Token.String() != first.Token.String() {
		t.Errorf("got %+v, first %+v", again, first)
	}
	for _, other := range []eventstore.Write{
		eventstore.To(w.Stream, eventstore.Exactly(2), ownEvent("3")), eventstore.To(w.Stream, eventstore.NoStream, ownEvent("4"), ownEvent("5")),
	} {
		if _, err := store.Append(t.Context(), other); !errors.Is(err, eventstore.ErrStreamClosed) {
			t.Errorf("got %v, want ErrStreamClosed", err)
		}
	}
}
