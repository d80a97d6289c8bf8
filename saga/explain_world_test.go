package saga

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/flow"
)

// noon is when everything in these tests is set in motion.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// after is so many seconds after noon.
func after(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// rowWorld is a store into which rows of sagas are written as managers, dispatchers and relays do.
type rowWorld struct {
	t    testing.TB
	pool *pgxpool.Pool
}

func newRowWorld(t testing.TB) *rowWorld {
	t.Helper()
	return &rowWorld{t: t, pool: postgrestest.New(t)}
}

func (w *rowWorld) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *rowWorld) progress(steps []flow.Step, plan ...string) []byte {
	w.t.Helper()
	text, err := json.Marshal(explainProgress{Steps: steps, Plan: plan})
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// instance begins a run of checkout 812 at noon, with the steps that it has begun.
func (w *rowWorld) instance(state flow.State, steps ...flow.Step) {
	w.t.Helper()
	w.exec(`INSERT INTO daybook.sagas (saga, key, run, version, kind, state, progress, content_type, data, started_by, correlation_id, started_at, changed_at)
		VALUES ('checkout', '812', 1, 1, 'process', $1, $2, 'application/json', '{}', gen_random_uuid(), 'c-812', $3, $3)`,
		string(state), w.progress(steps, "reserve-stock", "take-payment", "hand-over"), noon)
}

// set changes the row of the instance.
func (w *rowWorld) set(assignments string, args ...any) {
	w.t.Helper()
	w.exec(`UPDATE daybook.sagas SET `+assignments+` WHERE saga = 'checkout' AND key = '812'`, args...)
}

// stuck is what a manager stores.
func (w *rowWorld) stuck(reason, step, text string, at time.Time) {
	w.t.Helper()
	w.set(`stuck = $1, stuck_step = $2, stuck_text = $3, stuck_since = $4`, reason, step, text, at)
}

// send is a command that the instance has sent: the first one of a step.
func (w *rowWorld) send(step string, direction flow.Direction, kind, target string, at time.Time) uuid.UUID {
	w.t.Helper()
	ref := flow.Ref{Saga: "checkout", Key: "812", Run: 1}
	id := flow.CommandID(ref, step, direction, 1)
	w.exec(`INSERT INTO daybook.saga_commands (command, saga, key, run, step, direction, intent, type, target, content_type, data, sent_at)
		VALUES ($1, 'checkout', '812', 1, $2, $3, 1, $4, $5, 'application/json', '{}', $6)`, id, step, string(direction), kind, target, at)
	return id
}

// enqueue puts a command into the outbox, and returns its position.
func (w *rowWorld) enqueue(id uuid.UUID, kind, target string, at time.Time) (position int64) {
	w.t.Helper()
	tx, err := w.pool.Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	err = tx.QueryRow(w.t.Context(), `WITH p AS (SELECT nextval('daybook.log_position') AS position)
		INSERT INTO daybook.outbox (first_position, last_position, id, partition, topic, key, type, content_type, data, recorded_at)
		SELECT p.position, p.position, $1, daybook.partition_of($2, s.partitions), 'commands', $2, $3, 'application/json', '{}', $4
		  FROM p, daybook.store s RETURNING first_position`, id, target, kind, at).Scan(&position)
	if err == nil {
		err = tx.Commit(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return position
}

// ends is what a dispatcher stores of a command.
func (w *rowWorld) ends(id uuid.UUID, state, code, reason string, at time.Time) {
	w.t.Helper()
	w.exec(`INSERT INTO daybook.operations (id, type, state, code, reason, accepted_at, started_at, finished_at) VALUES ($1, 't', $2, $3, $4, $5, $5, $5)`,
		id, state, code, reason, at)
}

// learns is what a manager stores when a reply comes.
func (w *rowWorld) learns(id uuid.UUID, at time.Time) {
	w.t.Helper()
	w.exec(`UPDATE daybook.saga_commands c SET state = o.state, code = o.code, reason = o.reason, replied_at = $2 FROM daybook.operations o WHERE o.id = c.command AND c.command = $1`, id, at)
}

func (w *rowWorld) timer(name, does string, due time.Time) {
	w.t.Helper()
	w.exec(`INSERT INTO daybook.timers (queue, name, due_at, visible_at, does, set_at) VALUES ($1, $2, $3, $3, $4, $5)`,
		timerQueue("checkout"), timerName(flow.Ref{Saga: "checkout", Key: "812", Run: 1}, name), due, does, noon)
}

// consumer is a consumer of the store with one segment; whoever owns it has a lease until then.
func (w *rowWorld) consumer(name, kind string, version int, floor int64, until, committed time.Time) {
	w.t.Helper()
	w.exec(`INSERT INTO daybook.consumers (consumer, version, kind) VALUES ($1, $2, $3)`, name, version, kind)
	w.exec(`INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition, owner, floor, expires_at, committed_at)
		SELECT $1, $2, 0, 0, s.partitions - 1, 'host-1', $3, $4, $5 FROM daybook.store s`, name, version, floor, until, committed)
}

// runs are the manager and the dispatcher, which have all done what there was.
func (w *rowWorld) runs(at time.Time) {
	w.t.Helper()
	w.consumer(explainEvents("checkout"), "saga", 1, 1<<40, at.Add(time.Hour), at)
	w.consumer(explainReplies("checkout"), "saga", 1, 1<<40, at.Add(time.Hour), at)
	w.consumer(explainDispatcher, "dispatcher", 1, 1<<40, at.Add(time.Hour), at)
}

func (w *rowWorld) explain(now time.Time, options ...ExplainOption) Explanation {
	w.t.Helper()
	e, err := Explain(w.t.Context(), w.pool, "checkout", "812", append(options, At(now))...)
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// says checks the reason and the sentence.
func (w *rowWorld) says(e Explanation, reason, sentence string) {
	w.t.Helper()
	if e.Reason != reason || e.Sentence != sentence {
		w.t.Errorf("reason %q, want %q; the sentence is\n  %s\nwant\n  %s", e.Reason, reason, e.Sentence, sentence)
	}
	if stuck := reason != "" && reason != ReasonRetrying; e.Stuck != stuck {
		w.t.Errorf("stuck is %v", e.Stuck)
	}
}

// remedies checks what is to be typed.
func (w *rowWorld) remedies(e Explanation, commands ...string) {
	w.t.Helper()
	if len(e.Problems) == 0 || e.Problems[0].Remedy == "" {
		w.t.Errorf("no remedy: %+v", e.Problems)
		return
	}
	if got := strings.Join(e.Problems[0].Commands, "\n"); got != strings.Join(commands, "\n") {
		w.t.Errorf("to be typed:\n%s\nwant\n%s", got, strings.Join(commands, "\n"))
	}
}

// tracer keeps the statements of a pool.
type tracer struct {
	mu   sync.Mutex
	seen map[string][]any
}

func (tr *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if strings.Contains(data.SQL, "daybook") {
		tr.seen[data.SQL] = data.Args
	}
	return ctx
}

func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (tr *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "daybook") {
			tr.seen[q.SQL] = q.Arguments
		}
	}
	return ctx
}

func (*tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (tr *tracer) clear() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	clear(tr.seen)
}

var (
	planScan    = regexp.MustCompile(`Scan .*on .*\(actual rows=(\d+) loops=(\d+)\)`)
	planRemoved = regexp.MustCompile(`Rows Removed by (?:Filter|Index Recheck): (\d+)`)
)

// rowsRead is how many rows of tables a plan has touched.
func rowsRead(t testing.TB, plan string) (read int) {
	t.Helper()
	loops := 1
	for line := range strings.Lines(plan) {
		number := func(text string) int {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		switch m, removed := planScan.FindStringSubmatch(line), planRemoved.FindStringSubmatch(line); {
		case m != nil && strings.Contains(line, "Subquery Scan"), m != nil && strings.Contains(line, "CTE Scan"), m != nil && strings.Contains(line, "Function Scan"):
			loops = 0
		case m != nil:
			loops = number(m[2])
			read += number(m[1]) * loops
		case removed != nil:
			read += number(removed[1]) * loops
		}
	}
	return read
}

// traced is a pool of the same database whose statements are kept.
func (w *rowWorld) traced() (*pgxpool.Pool, *tracer) {
	w.t.Helper()
	cfg, err := pgxpool.ParseConfig(postgrestest.URL(w.pool))
	if err != nil {
		w.t.Fatal(err)
	}
	tr := &tracer{seen: map[string][]any{}}
	cfg.ConnConfig.Tracer, cfg.MaxConns = tr, 2
	pool, err := pgxpool.NewWithConfig(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	return pool, tr
}

// plans are the plans of what was traced, as they were carried out.
func (w *rowWorld) plans(tr *tracer) map[string]string {
	w.t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	plans := map[string]string{}
	for sql, args := range tr.seen {
		tx, err := w.pool.Begin(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := tx.Exec(w.t.Context(), explainPlanSQL, "10000"); err != nil {
			w.t.Fatal(err)
		}
		rows, err := tx.Query(w.t.Context(), "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+sql, args...)
		if err != nil {
			w.t.Fatalf("%v\n%s", err, sql)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			w.t.Fatalf("%v\n%s", err, sql)
		}
		if err := tx.Rollback(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		plans[sql] = strings.Join(lines, "\n")
	}
	return plans
}
