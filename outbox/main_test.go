package outbox

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds every wait of these tests; none is expected to come near it.
const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
