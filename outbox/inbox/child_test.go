package inbox

import (
	"context"
	"os"
)

const childURL = "DAYBOOK_INBOX_TEST_URL"

func child() error { _ = context.Background(); _ = os.Args; return nil }
