package commandhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
)

// unread is a body that fails the test when it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body of a request that was sent away is read")
	return 0, errors.New("read")
}

func (unread) Close() error { return nil }

// full is a world with one place, which is taken until the test frees it.
func full(t *testing.T, queue int) (w *world, gate *admission.Gate, free func()) {
	t.Helper()
	gate, err := admission.New(admission.Config{
		MinConcurrency: 1, MaxConcurrency: 1, InitialConcurrency: 1, Queue: queue,
		MaxWaitCritical: time.Minute, MaxWaitNormal: time.Minute, MaxWaitBulk: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	w = newWorld(t, func(_ *world, c *commandhttp.Config) { c.Gate = gate })
	pass, err := gate.Admit(t.Context(), admission.Request{Tenant: "first"})
	if err != nil {
		t.Fatal(err)
	}
	return w, gate, func() { pass.Done(nil) }
}

// waitFor waits until so many stand in the queue.
func waitFor(t *testing.T, gate *admission.Gate, waiting int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for gate.Stats().Waiting() != waiting {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("the queue does not fill")
		}
	}
}

// A request that is sent away was not executed, and nobody has looked at its body. Operators come in all the same.
func TestSentAway(t *testing.T) {
	t.Parallel()
	w, gate, free := full(t, 3)
	var ran atomic.Int32
	w.handle = func(context.Context, anything) (bus.Reply, error) {
		ran.Add(1)
		return bus.Reply{}, nil
	}
	commandhttp.Command(w.api, "POST /normal", commandhttp.Endpoint[anything]{})
	waiting := make(chan answer, 3)
	for i, tenant := range []string{"greedy", "greedy", "modest"} {
		go func() {
			a, err := w.try(w.request(t, http.MethodGet, "/total", "", "X-Tenant: "+tenant))
			if err != nil {
				t.Error(err)
			}
			waiting <- a
		}()
		waitFor(t, gate, i+1)
	}
	for _, c := range []struct {
		path, tenant string
		status       int
		kind         string
	}{
		{"/normal", "modest", http.StatusServiceUnavailable, "overloaded"},
		{"/normal", "greedy", http.StatusTooManyRequests, "share"},
		{"/anything", "new", http.StatusServiceUnavailable, "overloaded"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.path, unread{t})
		r.Header.Set("X-Tenant", c.tenant) // and no key: not even the headers count before there is a place
		recorder := httptest.NewRecorder()
		w.api.ServeHTTP(recorder, r)
		seconds, err := strconv.Atoi(recorder.Header().Get("Retry-After"))
		if recorder.Code != c.status || !strings.Contains(recorder.Body.String(), "urn:bank:"+c.kind) || err != nil || seconds < 1 {
			t.Errorf("%s: %d %v %s", c.tenant, recorder.Code, recorder.Header(), recorder.Body)
		}
	}
	if ran.Load() != 0 {
		t.Error("a request that was sent away was executed")
	}
	w.send(t, http.MethodGet, "/healthz", "", "X-Actor: stranger").says(t, http.StatusOK, nil)
	w.send(t, http.MethodGet, "/problems", "").says(t, http.StatusOK, nil)
	free()
	for range 3 {
		(<-waiting).says(t, http.StatusOK, nil)
	}
	w.send(t, http.MethodPost, "/anything", `{}`, "Idempotency-Key: k").says(t, http.StatusNoContent, nil)
	if s := gate.Stats(); s.Running != 0 || s.Waiting() != 0 {
		t.Errorf("places are lost: %+v", s)
	}
}

// A critical caller takes the place of another in the queue; the endpoint of operators is none of theirs.
func TestClassOfCaller(t *testing.T) {
	t.Parallel()
	w, gate, free := full(t, 1)
	normal, critical := make(chan answer, 1), make(chan answer, 1)
	ask := func(out chan answer, headers ...string) {
		a, err := w.try(w.request(t, http.MethodGet, "/total", "", headers...))
		if err != nil {
			t.Error(err)
		}
		out <- a
	}
	go ask(normal)
	waitFor(t, gate, 1)
	go ask(critical, "X-Class: critical")
	(<-normal).says(t, http.StatusServiceUnavailable, map[string]any{"type": "urn:bank:overloaded"})
	free()
	(<-critical).says(t, http.StatusOK, nil)
}

// Who waits for a token takes no place from those that work.
func TestWaitingTakesNoPlace(t *testing.T) {
	t.Parallel()
	gate, err := admission.New(admission.Config{MinConcurrency: 1, MaxConcurrency: 1, InitialConcurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	waits, goOn := make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(_ *world, c *commandhttp.Config) {
		c.Gate, c.Waiting = gate, 1
		c.Wait = func(ctx context.Context, _ eventstore.Token) error {
			waits <- struct{}{}
			select {
			case <-goOn:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	patient := make(chan answer, 1)
	go func() {
		a, err := w.try(w.request(t, http.MethodGet, "/total", "", "Consistency-Token: "+w.token(), "Prefer: wait=20"))
		if err != nil {
			t.Error(err)
		}
		patient <- a
	}()
	<-waits
	w.send(t, http.MethodGet, "/total", "").says(t, http.StatusOK, nil)
	// They are counted too.
	a := w.send(t, http.MethodGet, "/total", "", "Consistency-Token: "+w.token())
	if a.says(t, http.StatusServiceUnavailable, map[string]any{"type": "urn:bank:overloaded"}); !retry(a) {
		t.Errorf("%v", a.header)
	}
	close(goOn)
	if a := <-patient; a.status != http.StatusOK || a.header.Get("Preference-Applied") != "wait=20" {
		t.Errorf("%d %v", a.status, a.header)
	}
	if s := gate.Stats(); s.Running != 0 {
		t.Errorf("places are lost: %+v", s)
	}
}

// A server that ends does not wait for those who only wait.
func TestClose(t *testing.T) {
	t.Parallel()
	waits := make(chan struct{})
	w := newWorld(t, func(_ *world, c *commandhttp.Config) {
		c.Wait = func(ctx context.Context, _ eventstore.Token) error {
			close(waits)
			<-ctx.Done()
			return &commandhttp.StaleError{Lag: commandhttp.Lag{Behind: 2, Working: true}}
		}
	})
	got := make(chan answer, 1)
	go func() {
		a, err := w.try(w.request(t, http.MethodGet, "/total", "", "Consistency-Token: "+w.token(), "Prefer: wait=30"))
		if err != nil {
			t.Error(err)
		}
		got <- a
	}()
	<-waits
	w.api.Close()
	(<-got).says(t, http.StatusServiceUnavailable, map[string]any{"detail": "the server is ending"})
	w.send(t, http.MethodGet, "/healthz", "").says(t, http.StatusOK, nil)
}

// Work that was let in is not asked for again by a gate of the bus; work that nobody has let in is.
func TestTwoGates(t *testing.T) {
	t.Parallel()
	outer, err := admission.New(admission.Config{})
	if err != nil {
		t.Fatal(err)
	}
	inner, err := admission.New(admission.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for gate, want := range map[*admission.Gate]uint64{outer: 0, nil: 1} {
		w := newWorld(t, func(_ *world, c *commandhttp.Config) { c.Gate = gate })
		w.inner, w.handle = inner, fail(nil)
		before := inner.Stats().Admitted
		w.send(t, http.MethodPost, "/anything", `{}`, "Idempotency-Key: k").says(t, http.StatusNoContent, nil)
		if got := inner.Stats().Admitted - before; got != want {
			t.Errorf("the inner gate is asked %d times, want %d", got, want)
		}
	}
}

// The functions of an endpoint, and the events, know who asked.
func TestWhoAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var seen commandhttp.Caller
	var metadata eventstore.Metadata
	var command bus.Command
	commandhttp.Command(w.api, "POST /whoami", commandhttp.Endpoint[anything]{
		NoBody: true, Class: admission.Critical,
		Fill: func(r *http.Request, _ *anything) error { seen = commandhttp.CallerFrom(r.Context()); return nil },
	})
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		metadata = eventstore.MetadataFrom(ctx)
		command, _ = bus.CommandFrom(ctx)
		return bus.Reply{}, nil
	}
	for _, c := range []struct{ actor, scope string }{
		{"ada/../b", "north/ada%2F..%2Fb"}, {strings.Repeat("a", 300), "sha256:"},
	} {
		w.send(t, http.MethodPost, "/whoami", "", "Idempotency-Key: k", "X-Tenant: north", "X-Actor: "+c.actor, "X-Class: bulk").
			says(t, http.StatusNoContent, nil)
		if seen.Actor != c.actor || metadata.Tenant != "north" || metadata.Actor != c.actor || !strings.HasPrefix(command.Scope, c.scope) ||
			len(command.Scope) > 200 || command.Key != "k" || command.Class != admission.Bulk || command.Deadline.IsZero() {
			t.Errorf("%+v, %+v, %+v", seen, metadata, command)
		}
	}
	if nobody := commandhttp.CallerFrom(t.Context()); nobody.Actor != "" {
		t.Errorf("%+v", nobody)
	}
}
