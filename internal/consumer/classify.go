package consumer

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
)

// kind is what a failed attempt means.
type kind uint8

const (
	// failure: of an event or of the code that applies it. Uses up attempts.
	failure kind = iota
	// environment: something that the consumer needs is away or busy. Waited out without end.
	environment
	// fenced: another worker took over, or the checkpoint is not where this worker left it. Take the lease again.
	fenced
	// history: the log is not the one that was read before. The consumer stops.
	history
)

// Codes that the store's functions raise.
const (
	codeFenced     = "DB002"
	codeCheckpoint = "DB003"
	codeOld        = "DB006" // this program is older than the schema
)

// classify judges an error of the database or of the source. dead says that the connection is gone.
func classify(err error, dead bool) kind {
	if errors.Is(err, eventstore.ErrHistory) {
		return history
	}
	if tooLarge(err) {
		return failure
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return environment
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return classifyCode(pg.Code)
	}
	if dead || errors.Is(err, eventstore.ErrBusy) || errors.Is(err, eventstore.ErrUnconfirmed) {
		return environment
	}
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err) {
		return environment
	}
	return failure
}

// Away reports whether err says that a database cannot be reached or is not up: what waiting mends, and no repeat.
func Away(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "40001", "40P01", "55P03": // somebody else's transaction
			return false
		}
	}
	return classify(err, false) == environment && !errors.Is(err, eventstore.ErrBusy) && !errors.Is(err, eventstore.ErrUnconfirmed)
}

// tooLarge: the driver sends no message over a gigabyte, and says that it may be sent again. Only fewer events at a time
// make it smaller. The driver has no type or value for this error.
func tooLarge(err error) bool { return strings.Contains(err.Error(), "message body too large") }

// classifyCode follows the table of SQLSTATE codes in PostgreSQL's manual.
func classifyCode(code string) kind {
	switch code {
	case codeFenced, codeCheckpoint:
		return fenced
	case codeOld: // no event is to blame; the reason says that the program must be restarted
		return environment
	case "40001", "40P01", "55P03": // serialization failure, deadlock, lock timeout
		return environment
	case "25006": // read-only transaction: the server became a standby
		return environment
	}
	for _, class := range [...]string{
		"08",   // connection
		"53",   // out of disk, memory, connections
		"57P0", // shut down, restarted, starting up
		"58",   // input/output of the server
	} {
		if strings.HasPrefix(code, class) {
			return environment
		}
	}
	return failure
}

// classifyHandler judges what user code returned. A handler whose own context ended has failed like any other; only
// the worker's context means that the worker is asked to end, and that is checked before.
func classifyHandler(err error, dead bool) kind {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return failure
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == codeFenced || pg.Code == codeCheckpoint) {
		return failure // not our fence: the handler called something of its own
	}
	if k := classify(err, dead); k != history {
		return k
	}
	return failure
}

// connState says what is left of a connection: gone, and in which transaction state.
func connState(conn *pgx.Conn) (dead bool, tx byte) {
	if conn.IsClosed() {
		return true, 0
	}
	return false, conn.PgConn().TxStatus()
}
