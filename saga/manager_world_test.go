package saga

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
)

// The events of these tests. Ops says what a [scripted] machine does when it sees one: "send x", "again x", "timer x 5s",
// "cancel x", "cancel all", "close x", "complete", "compensate", "stick", "fail", "hang" and "panic".
type (
	opened struct{ Ops []string } // begins an instance whose key is the stream's id
	poked  struct {
		Key string
		Ops []string
	} // is found by its key
	answered struct{ Ops []string } // is found by the command that caused it
)

var scriptEvents = eventstore.NewCatalog(eventstore.TypeOf[opened]("script.opened"), eventstore.TypeOf[poked]("script.poked"),
	eventstore.TypeOf[answered]("script.answered"))

// scripted is a machine whose inputs say what it does, and that remembers them all.
type scripted struct {
	name    string
	version int
	broken  *atomic.Bool  // it fails at everything
	deaf    bool          // it reads no answers
	hangs   chan struct{} // what "hang" waits for
}

func (m *scripted) Name() string               { return m.name }
func (m *scripted) Version() int               { return m.version }
func (m *scripted) Validate() error            { return nil }
func (m *scripted) Diagram() string            { return "" }
func (m *scripted) Parts() (flow.Parts, error) { return flow.Parts{Machine: m}, nil }
func (m *scripted) Kind() string               { return "flow" }
func (m *scripted) Types() []string {
	return []string{"script.answered", "script.opened", "script.poked"}
}
func (m *scripted) Decode(e eventstore.RecordedEvent) (any, error) {
	return scriptEvents.Decode(e)
}

func (m *scripted) Starts(e *eventstore.RecordedEvent, payload any) (string, bool, error) {
	_, ok := payload.(opened)
	return e.Stream.ID, ok, nil
}

func (m *scripted) Keys(_ *eventstore.RecordedEvent, payload any) ([]string, error) {
	if p, ok := payload.(poked); ok && p.Key != "" {
		return []string{p.Key}, nil
	}
	return nil, nil
}

func (m *scripted) Answers(e *eventstore.RecordedEvent) bool { return e.Type == "script.answered" }

// memory is the state: what came in, in order.
type memory struct {
	Log  []string
	Sent map[string]int // intents by step
}

func (m *scripted) Begin(ctx context.Context, prep flow.Preparer, ref flow.Ref, in flow.Input) (*flow.Instance, flow.Effects, error) {
	i := &flow.Instance{Ref: ref, State: flow.Running, Data: memory{Sent: map[string]int{}}}
	fx, err := m.React(ctx, prep, i, in)
	return i, fx, err
}

var errScript = errors.New("as the script says")

func (m *scripted) React(ctx context.Context, prep flow.Preparer, i *flow.Instance, in flow.Input) (fx flow.Effects, err error) {
	if m.broken != nil && m.broken.Load() {
		return fx, errScript
	}
	data := i.Data.(memory)
	var ops []string
	var line string
	switch p := in.Payload.(type) {
	case opened:
		line, ops = "opened", p.Ops
	case poked:
		line, ops = "poked", p.Ops
	case answered:
		line, ops = "answered "+in.Origin.Step, p.Ops
	}
	switch {
	case in.Reply != nil:
		line = "reply " + in.Origin.Step + " " + string(in.Reply.State)
		if in.Origin.Direction == flow.End {
			ops = []string{"complete"}
		}
	case in.Timer != "":
		line, ops = "timer "+in.Timer, strings.Split(strings.TrimPrefix(in.Timer, "do "), ", ")
		if !strings.HasPrefix(in.Timer, "do ") {
			ops = nil
		}
	case in.Action != nil:
		line = "action " + in.Action.Name + " " + in.Action.Step
		if in.Action.Step == "refuse" {
			return fx, &ActionError{Action: in.Action.Name, Saga: i.Saga, Key: i.Key, Run: i.Run, Reason: "it refuses", Remedy: "ask for something else"}
		}
		ops = strings.Split(in.Action.Step, ", ")
		i.Stuck = flow.Stuck{}
		fx.History = append(fx.History, flow.Entry{Kind: "action", Text: in.Action.Name, Actor: in.Action.Actor, Reason: in.Action.Reason})
	}
	data.Log = append(slices.Clone(data.Log), line)
	for _, op := range ops {
		if err := m.op(ctx, prep, i, &data, &fx, op); err != nil {
			return fx, err
		}
	}
	i.Data = data
	return fx, nil
}

func (m *scripted) op(ctx context.Context, prep flow.Preparer, i *flow.Instance, data *memory, fx *flow.Effects, op string) error {
	verb, rest, _ := strings.Cut(op, " ")
	switch verb {
	case "send", "end":
		direction := flow.Do
		if verb == "end" {
			direction = flow.End
		}
		c, err := prep.Prepare(ctx, "target-"+i.Key, rest)
		if err != nil {
			return err
		}
		sent := map[string]int{}
		for step, n := range data.Sent {
			sent[step] = n
		}
		sent[rest]++
		data.Sent = sent
		c.ID, c.Step, c.Direction, c.Intent = flow.CommandID(i.Ref, rest, direction, sent[rest]), rest, direction, sent[rest]
		fx.Commands = append(fx.Commands, c)
		fx.History = append(fx.History, flow.Entry{Kind: "sent", Step: rest})
	case "again":
		fx.Commands = append(fx.Commands, flow.Command{
			ID: flow.CommandID(i.Ref, rest, flow.Do, data.Sent[rest]), Step: rest, Direction: flow.Do, Intent: data.Sent[rest], Again: true,
		})
	case "timer":
		name, after, _ := strings.Cut(rest, " ")
		d, err := time.ParseDuration(after)
		if err != nil {
			return err
		}
		fx.Timers = append(fx.Timers, flow.Timer{Name: name, After: d, Does: "what " + name + " does"})
	case "script": // a timer with a script, due at once
		fx.Timers = append(fx.Timers, flow.Timer{Name: "do " + rest})
	case "cancel":
		if rest == "all" {
			fx.CancelAll = true
		} else {
			fx.Cancel = append(fx.Cancel, rest)
			fx.Timers = slices.DeleteFunc(fx.Timers, func(t flow.Timer) bool { return t.Name == rest })
		}
	case "close":
		fx.Closed = append(fx.Closed, flow.CommandID(i.Ref, rest, flow.Do, data.Sent[rest]))
	case "complete":
		i.State, fx.CancelAll = flow.Completed, true
		fx.History = append(fx.History, flow.Entry{Kind: "completed"})
	case "reopen":
		i.State = flow.Compensating
		fx.History = append(fx.History, flow.Entry{Kind: "undo"})
	case "stick":
		i.Stuck = flow.Stuck{Reason: flow.DeadLetter, Text: "as the script says"}
	case "fail":
		return errScript
	case "hang":
		<-m.hangs
	case "panic":
		panic("as the script says")
	}
	return nil
}

func (m *scripted) Encode(i *flow.Instance) ([]byte, string, []byte, error) {
	data, err := json.Marshal(i.Data)
	return data, "application/json", []byte("{}"), err
}

func (m *scripted) Restore(i *flow.Instance, data []byte, _ string, _ []byte) error {
	var state memory
	err := json.Unmarshal(data, &state)
	if state.Sent == nil {
		state.Sent = map[string]int{}
	}
	i.Data = state
	return err
}

func (m *scripted) Awaits(*flow.Instance) string { return "what the script says" }

// post is a Sender that keeps commands in a table and lets tests say how they end.
type post struct {
	mu      sync.Mutex
	replies []eventstore.RecordedEvent
	more    chan struct{}
}

func newPost() *post { return &post{more: make(chan struct{})} }

func (*post) Schema() string { return "daybook" }

func (*post) Prepare(_ context.Context, to string, payload any) (flow.Command, error) {
	data, err := json.Marshal(payload)
	return flow.Command{Type: "script.do", Target: to, ContentType: "application/json", Data: data}, err
}

func (*post) Enqueue(ctx context.Context, tx pgx.Tx, saga string, meta []eventstore.Metadata, commands []flow.Command) error {
	var ids, steps, actors, causes []string
	var data [][]byte
	for n, c := range commands {
		ids, steps, data = append(ids, c.ID.String()), append(steps, c.Step), append(data, c.Data)
		actors, causes = append(actors, meta[n].Actor), append(causes, meta[n].CausationID)
	}
	_, err := tx.Exec(ctx, `INSERT INTO sent (saga, id, step, data, actor, cause)
SELECT $1, u.* FROM unnest($2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[]) u`, saga, ids, steps, data, actors, causes)
	return err
}

func (p *post) Replies(string) (Source, func(eventstore.RecordedEvent) (flow.Reply, error), error) {
	return p, func(e eventstore.RecordedEvent) (r flow.Reply, err error) {
		err = json.Unmarshal(e.Data, &r)
		return r, err
	}, nil
}

// reply says how a command ended.
func (p *post) reply(command uuid.UUID, state flow.ReplyState) {
	data, err := json.Marshal(flow.Reply{Command: command, State: state, Reason: "because", At: time.Now()})
	if err != nil {
		panic(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := int64(len(p.replies) + 1)
	p.replies = append(p.replies, eventstore.RecordedEvent{
		EventData: eventstore.EventData{ID: uuid.New(), Type: "reply", SchemaVersion: 1, ContentType: "application/json", Data: data},
		Position:  eventstore.PositionAt(n), PartitionKey: command.String(),
	})
	close(p.more)
	p.more = make(chan struct{})
}

func (p *post) ReadPage(_ context.Context, after eventstore.Position, _ eventstore.Filter, limit int) (eventstore.Page, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := min(int(after.Ordinal()), len(p.replies))
	to := min(from+limit, len(p.replies))
	return eventstore.Page{Events: slices.Clone(p.replies[from:to]), Through: eventstore.PositionAt(int64(to))}, nil
}

func (p *post) Wait(ctx context.Context, after eventstore.Position) error {
	p.mu.Lock()
	more, n := p.more, int64(len(p.replies))
	p.mu.Unlock()
	if n > after.Ordinal() {
		return nil
	}
	select {
	case <-more:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// scriptWorld is a store with a manager of scripted sagas.
type scriptWorld struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *postgres.Store
	post  *post
}

func newScriptWorld(t testing.TB, definitions ...Definition) *scriptWorld {
	t.Helper()
	pool := postgrestest.New(t)
	store, err := postgres.New(t.Context(), pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	w := &scriptWorld{t, pool, store, newPost()}
	w.exec("CREATE TABLE sent (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, saga text, id text, step text, data bytea, actor text, cause text)")
	if err := Install(t.Context(), pool, definitions...); err != nil {
		t.Fatal(err)
	}
	return w
}

// quick is a configuration for tests that wait for pauses.
func quick() Config {
	return Config{Lease: 500 * time.Millisecond, Poll: 20 * time.Millisecond, RetryBase: time.Millisecond, RetryCap: 20 * time.Millisecond, Attempts: 3}
}

func (w *scriptWorld) manager(cfg Config, definitions ...Definition) *Manager {
	w.t.Helper()
	m, err := NewManager(w.pool, w.store.Log(), w.post, cfg, definitions...)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *scriptWorld) start(m *Manager) (stop func()) {
	w.t.Helper()
	return livetest.Start(w.t, m.Run)
}

func (w *scriptWorld) exec(sql string, args ...any) int64 {
	w.t.Helper()
	tag, err := w.pool.Exec(context.Background(), sql, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return tag.RowsAffected()
}

func (w *scriptWorld) append(stream string, cause uuid.UUID, events ...any) {
	w.t.Helper()
	var all []eventstore.EventData
	for _, e := range events {
		d, err := scriptEvents.Encode(e)
		if err != nil {
			w.t.Fatal(err)
		}
		if cause != uuid.Nil {
			d.Metadata.CausationID = cause.String()
		}
		all = append(all, d)
	}
	if _, err := w.store.Append(w.t.Context(), eventstore.To(eventstore.StreamID{Category: "script", ID: stream}, eventstore.AnyVersion, all...)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *scriptWorld) open(key string, ops ...string) { w.append(key, uuid.Nil, opened{ops}) }
func (w *scriptWorld) poke(key string, ops ...string) { w.append("pokes", uuid.Nil, poked{key, ops}) }
func (w *scriptWorld) answer(command uuid.UUID, ops ...string) {
	w.append("answers-"+command.String(), command, answered{ops})
}

// ofAnySaga lets an instance be found by the primary key. Without it the index is read whole, which starves what a test with very
// many instances waits for.
const ofAnySaga = "saga = ANY (ARRAY(SELECT n.saga FROM daybook.saga_names n))"

// log is what an instance has seen, one word for each run.
func (w *scriptWorld) log(key string, run int) string {
	w.t.Helper()
	var data []byte
	err := w.pool.QueryRow(context.Background(), "SELECT data FROM daybook.sagas WHERE "+ofAnySaga+" AND key = $1 AND run = $2", key, run).Scan(&data)
	if errors.Is(err, pgx.ErrNoRows) {
		return ""
	}
	var m memory
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(m.Log, "; ")
}

// sees waits until an instance has seen something.
func (w *scriptWorld) sees(key string, run int, want string) {
	w.t.Helper()
	livetest.Eventually(w.t, key+" sees "+want, func() bool { return w.log(key, run) == want }, func() string { return w.log(key, run) })
}

// column is one value of the row of an instance.
func (w *scriptWorld) column(key string, run int, name string) string {
	w.t.Helper()
	return w.value("SELECT coalesce(("+name+")::text, '') FROM daybook.sagas WHERE "+ofAnySaga+" AND key = $1 AND run = $2", key, run)
}

func (w *scriptWorld) value(sql string, args ...any) (text string) {
	w.t.Helper()
	if err := w.pool.QueryRow(context.Background(), sql, args...).Scan(&text); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func (w *scriptWorld) number(sql string, args ...any) int {
	w.t.Helper()
	n, err := strconv.Atoi(w.value("SELECT ("+sql+")::text", args...))
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *scriptWorld) becomes(what, want string, sql string, args ...any) {
	w.t.Helper()
	livetest.Eventually(w.t, what, func() bool { return w.value(sql, args...) == want }, func() string { return w.value(sql, args...) })
}

// sent are the commands that were sent, effective once each: ids in order.
func (w *scriptWorld) sent() []string {
	w.t.Helper()
	rows, err := w.pool.Query(context.Background(), "SELECT step || ' ' || count(*) FROM sent GROUP BY id, step ORDER BY min(n)")
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func idOf(saga, key string, run int, step string, intent int) uuid.UUID {
	return flow.CommandID(flow.Ref{Saga: saga, Key: key, Run: run}, step, flow.Do, intent)
}

func script(version int) *scripted { return &scripted{name: "script", version: version} }

func (w *scriptWorld) position(n int64) eventstore.Position { return eventstore.PositionAt(n) }

func (m *scripted) filter() eventstore.Filter { return eventstore.Filter{Types: m.Types()} }

func mustEqual[T any](t testing.TB, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(eventstore.Position{})); diff != "" {
		t.Errorf("differs:\n%s", diff)
	}
}
