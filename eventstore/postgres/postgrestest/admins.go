package postgrestest

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
)

// keptAdmins is how many connections to a server wait for the next test. More
// tests than that rarely begin or end at one time.
const keptAdmins = 2

// admins is the process's connections for making and dropping databases. To
// connect costs as much as what is done then. It is no pool, because a pool runs
// goroutines, which the leak detectors of tests would find; a connection that
// waits has none.
var admins = adminConns{idle: map[string][]*pgx.Conn{}}

type adminConns struct {
	mu   sync.Mutex
	idle map[string][]*pgx.Conn // by URL
}

// with runs a function on a connection that nobody else uses meanwhile. What it
// leaves on the session is there for the next one; after an error there is none.
func (a *adminConns) with(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	conn := a.take(url)
	if conn != nil && conn.Ping(ctx) != nil { // the server was started again, or ended the session
		_ = conn.Close(ctx)
		conn = nil
	}
	if conn == nil {
		var err error
		if conn, err = pgx.Connect(ctx, url); err != nil {
			return err
		}
	}
	err := do(conn)
	if err != nil || !a.give(url, conn) {
		// Its work is done; how it ends does not matter.
		_ = conn.Close(ctx)
	}
	return err
}

func (a *adminConns) take(url string) *pgx.Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.idle[url]
	if len(list) == 0 {
		return nil
	}
	last := len(list) - 1
	a.idle[url] = list[:last]
	return list[last]
}

func (a *adminConns) give(url string, conn *pgx.Conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if conn.IsClosed() || len(a.idle[url]) >= keptAdmins {
		return false
	}
	a.idle[url] = append(a.idle[url], conn)
	return true
}
