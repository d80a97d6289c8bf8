package saga

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The driver reads on for a moment after a connection is closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead"))
}
