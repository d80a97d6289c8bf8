package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/retry"
)

// Plan is what somebody has decided to try again, and how far it is.
type Plan struct {
	ID       uuid.UUID `json:"id"`
	Consumer string    `json:"consumer"`
	Version  int       `json:"version"`
	// State is "running", "done", "stopped" when more failed than may, or "cancelled".
	State string `json:"state"`
	Actor string `json:"actor"`
	// Reason is why, Selection what was asked for.
	Reason    string `json:"reason,omitempty"`
	Selection string `json:"selection"`
	// Rate, Canary and MaxFailures are as in [Options]; MaxFailures 0 stands for any number here.
	Rate        float64 `json:"rate"`
	Canary      int     `json:"canary"`
	MaxFailures int     `json:"max_failures"`
	// Items is how many letters the plan has. Of them Succeeded and Failed have been tried, Skipped were closed or gone
	// before their turn, Trying have begun and failed in a way that is tried again, and the rest waits. What has begun goes
	// on when the plan is stopped or cancelled, and counts as what it ends as.
	Items     int       `json:"items"`
	Succeeded int       `json:"succeeded"`
	Failed    int       `json:"failed"`
	Skipped   int       `json:"skipped"`
	Trying    int       `json:"trying"`
	CreatedAt time.Time `json:"created_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// ETA says how long the rest takes if all goes on as it does: "180 s", "3 h"; or what the plan waits for. It is empty
	// when the plan has ended and nothing of it is being tried.
	ETA string `json:"eta,omitempty"`
	// Failures are the first items that failed, at most ten. Only [Letters.Plan] fills them in.
	Failures []Failure `json:"failures,omitempty"`
}

// Failure is a letter that failed again.
type Failure struct {
	Letter   uuid.UUID `json:"letter"`
	Sequence string    `json:"sequence"`
	Error    string    `json:"error"` // of its last failure
}

// Left is how many letters of the plan have not had their turn; of a plan that has ended they are not tried.
func (p Plan) Left() int { return max(p.Items-p.Succeeded-p.Failed-p.Skipped-p.Trying, 0) }

// Running reports whether the plan has not ended.
func (p Plan) Running() bool { return p.State == "running" }

// Settled reports whether nothing of the plan will change any more: it has ended, and nothing of it is being tried.
func (p Plan) Settled() bool { return !p.Running() && p.Trying == 0 }

// Plan returns how far a plan is. An unknown one is [ErrNotFound].
func (l *Letters) Plan(ctx context.Context, id uuid.UUID) (Plan, error) {
	var p Plan
	err := l.read(ctx, "plan", func(tx pgx.Tx) (err error) {
		p, err = l.plan(ctx, tx, id)
		return err
	})
	return p, err
}

func (l *Letters) plan(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Plan, error) {
	p, err := scanPlan(tx.QueryRow(ctx, l.sql(planSelect+` WHERE r.redrive = $1`), id))
	if errors.Is(err, pgx.ErrNoRows) {
		return p, notFound("plan", id)
	} else if err != nil || p.Failed == 0 {
		return p, err
	}
	rows, err := tx.Query(ctx, l.sql(failuresSQL), id)
	if err != nil {
		return p, err
	}
	p.Failures, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Failure])
	return p, err
}

// Plans returns the plans of a consumer, or of all when it is empty, the newest first, at most a hundred; only those that
// are running when running is set.
func (l *Letters) Plans(ctx context.Context, consumer string, running bool) ([]Plan, error) {
	var plans []Plan
	err := l.read(ctx, "plans", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, l.sql(planSelect+`
 WHERE ($1 = '' OR r.consumer = $1) AND ($2 = false OR r.state = 'running') ORDER BY r.created_at DESC, r.redrive LIMIT 100`), consumer, running)
		if err != nil {
			return err
		}
		plans, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Plan, error) { return scanPlan(row) })
		return err
	})
	return plans, err
}

// planSelect goes by the letter of an item that has begun: the attempts go on, also when the owner that knows of the item is
// gone and nobody looks at a plan that has ended.
const planSelect = `
SELECT r.redrive, r.consumer, r.version, r.state, r.actor, r.reason, r.selection, r.rate, r.canary, r.most, r.items,
       r.succeeded + b.succeeded, r.failed + b.failed,
       (SELECT count(*) FROM {schema}.redrive_items i WHERE i.redrive = r.redrive AND i.state = 'skipped')::int + b.others, b.trying,
       r.created_at, r.ended_at, clock_timestamp(),
       (SELECT count(*) FROM {schema}.segments s WHERE s.consumer = r.consumer AND s.version = r.version)::int,
       (SELECT count(*) FROM {schema}.segments s WHERE s.consumer = r.consumer AND s.version = r.version AND s.expires_at > clock_timestamp())::int
  FROM {schema}.redrives r, LATERAL (
    SELECT (count(*) FILTER (WHERE l.state = 'retrying'))::int AS trying, (count(*) FILTER (WHERE l.state = 'applied'))::int AS succeeded,
           (count(*) FILTER (WHERE l.state = 'parked'))::int AS failed,
           (count(*) FILTER (WHERE l.state IS NULL OR l.state NOT IN ('retrying', 'applied', 'parked')))::int AS others
      FROM {schema}.redrive_items i LEFT JOIN {schema}.letters l ON l.letter = i.letter WHERE i.redrive = r.redrive AND i.state = 'running') b`

const failuresSQL = `
SELECT i.letter, i.sequence, coalesce(l.errors[1], '') FROM {schema}.redrive_items i LEFT JOIN {schema}.letters l ON l.letter = i.letter
 WHERE i.redrive = $1 AND (i.state = 'failed' OR i.state = 'running' AND l.state = 'parked') ORDER BY i.item LIMIT 10`

func scanPlan(row pgx.Row) (Plan, error) {
	var p Plan
	var ended *time.Time
	var now time.Time
	var segments, owned int
	err := row.Scan(&p.ID, &p.Consumer, &p.Version, &p.State, &p.Actor, &p.Reason, &p.Selection, &p.Rate, &p.Canary, &p.MaxFailures,
		&p.Items, &p.Succeeded, &p.Failed, &p.Skipped, &p.Trying, &p.CreatedAt, &ended, &now, &segments, &owned)
	if err != nil {
		return p, err
	}
	if p.CreatedAt = p.CreatedAt.UTC(); ended != nil {
		p.EndedAt = ended.UTC()
	}
	if !p.Settled() {
		p.ETA = p.eta(now, segments, owned)
	}
	return p, nil
}

// eta goes by what the plan has done in its time, or by its rate when it has done nothing yet.
func (p Plan) eta(now time.Time, segments, owned int) string {
	left := p.Trying
	if p.Running() {
		left += p.Left()
	}
	switch {
	case left == 0:
		return "0 s"
	case segments == 0:
		return fmt.Sprintf("never: %s v%d is no longer installed", p.Consumer, p.Version)
	case owned == 0:
		return fmt.Sprintf("waits: no process works on %s v%d", p.Consumer, p.Version)
	case left == p.Trying:
		return "as long as what has begun is tried again"
	}
	done, spent := p.Succeeded+p.Failed+p.Skipped, now.Sub(p.CreatedAt).Seconds()
	each := p.Rate
	if done > 0 && spent > 0 {
		each = float64(done) / spent
	}
	if each == 0 {
		return "not known yet"
	}
	return retry.Drain(int64(left), 1, each, 0).String()
}
