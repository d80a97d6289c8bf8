package timers

import (
	"context"
	"time"
)

// The settings that runners send statements with, and claims.
const (
	IndexesSQL = indexesSQL
	InOrderSQL = inOrderSQL
)

// Statements are all that the package sends, in a schema.
func Statements(schema string) map[string]string {
	texts := map[string]string{
		"set": setSQL, "cancel": cancelSQL, "cancelPrefix": cancelPrefixSQL, "shift": shiftSQL, "claim": claimSQL, "renew": renewSQL,
		"held": heldSQL, "finish": finishSQL, "retry": retrySQL, "release": releaseSQL, "overdue": overdueSQL, "list": listSQL,
	}
	for name, sql := range texts {
		texts[name] = in(schema, sql)
	}
	return texts
}

// ClaimBehind claims what is behind a timer, as a runner does after a full batch.
func ClaimBehind(ctx context.Context, db DB, request ClaimRequest, behind *Timer) ([]Timer, error) {
	return claim(ctx, db, request, from{behind: behind})
}

// ClaimRecent claims what became visible since, as a runner does while claims of all are dear.
func ClaimRecent(ctx context.Context, db DB, request ClaimRequest, since time.Duration) ([]Timer, error) {
	return claim(ctx, db, request, from{recent: &since})
}
