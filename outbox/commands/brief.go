package commands

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// restLimit is how long a short transaction may stand still between two statements, where no lease says less.
const restLimit = 10 * time.Second

// brief are the options of a short transaction. What it locks, others need: the server ends it when this process stands
// still, or is gone without a word.
func brief(rest time.Duration) pgx.TxOptions {
	if rest <= 0 || rest > restLimit {
		rest = restLimit
	}
	return pgx.TxOptions{BeginQuery: fmt.Sprintf(
		"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL idle_in_transaction_session_timeout = %d", rest.Milliseconds())}
}
