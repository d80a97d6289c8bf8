package outbox

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds every wait of these tests; none is expected to come near it.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(relayChildURL) != "" { // this process is the relay of a crash test
		if err := relayChild(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
