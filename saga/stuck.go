package saga

import (
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/flow"
)

const (
	// stuckLines bounds how many lines about instances that become stuck are logged in a second.
	stuckLines = 10
	// stuckCap is how far Health counts instances that are stuck.
	stuckCap = 1000
)

// became is an instance that a transaction leaves stuck, which it was not before, or for something else.
type became struct {
	place
	reason, step string
}

// sticks notes that an instance becomes stuck.
func (t *turn) sticks(in *instance, to flow.Stuck) {
	if was := in.facts.Stuck; to.Reason != "" && (in.fresh || was.Reason != to.Reason || was.Step != to.Step) {
		t.stuck = append(t.stuck, became{in.place, to.Reason, to.Step})
	}
}

// alert tells of instances that have become stuck, once that is committed. Texts of receivers and definitions are in the store
// only: they may hold what was sent.
func (u *unit) alert(stuck []became) {
	u.sum.stuck.Add(int64(len(stuck)))
	for _, s := range stuck {
		fits, leftOut := u.lines.fits(time.Now())
		if !fits {
			continue
		}
		attrs := []any{"key", s.key, "run", s.run, "reason", s.reason}
		if s.step != "" {
			attrs = append(attrs, "step", s.step)
		}
		if leftOut > 0 {
			attrs = append(attrs, "left_out", leftOut)
		}
		u.log.Error("an instance is stuck until somebody acts: Explain says why", attrs...)
	}
}

// lines lets at most stuckLines a second through, and counts the others until the next that it lets through. The zero value
// works. Safe for concurrent use.
type lines struct {
	mu              sync.Mutex
	began           time.Time
	logged, leftOut int
}

func (l *lines) fits(now time.Time) (fits bool, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.began) >= time.Second {
		l.began, l.logged = now, 0
	}
	if l.logged >= stuckLines {
		l.leftOut++
		return false, 0
	}
	l.logged++
	leftOut, l.leftOut = l.leftOut, 0
	return true, leftOut
}

// stuckCount is how many instances are stuck, as the last look has seen it.
type stuckCount struct {
	n     int
	since *time.Time
}

func (s *stuckCount) scan(row pgx.Row) error { return row.Scan(&s.n, &s.since) }

func (s *stuckCount) String() string {
	many := fmt.Sprint(s.n)
	switch {
	case s.n == 1:
		return "1 instance is stuck and waits for people: List with Stuck has it"
	case s.n >= stuckCap:
		many += " or more"
	}
	return many + " instances are stuck and wait for people: List with Stuck has them"
}

// stuckCountSQL is by the index of what is stuck, up to a bound.
const stuckCountSQL = `
SELECT count(*)::int, min(k.stuck_since) FROM (
  SELECT s.stuck_since FROM {schema}.sagas s WHERE s.saga = $1 AND s.stuck <> '' ORDER BY s.stuck_since LIMIT $2) k`
