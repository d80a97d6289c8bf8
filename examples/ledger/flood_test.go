package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-go/daybook/examples/ledger/api"
)

// More comes than can be done. What is sent away is told when to come back and was not carried out; whoever asks after the
// health is answered all the while; and a caller who asks for little gets in although another one asks for everything.
func TestClientUnderAFlood(t *testing.T) {
	t.Parallel()
	s, pool := newShell(t)
	seen := newTally(t)
	_, c := s.caller(t, seen)
	// The queue's places and those of what is worked on, and more.
	const flood = queueLength + 40
	lunch := entryJSON("", "expenses:food", "assets:cash", "1.00")
	release := hold(t, pool)
	var all sync.WaitGroup
	var away atomic.Int32
	answers := make([]said, flood)
	for i := range flood {
		all.Go(func() {
			answers[i] = c.post(t, fmt.Sprint("k", i), lunch, api.CallerHeader, "greedy")
			if answers[i].status != http.StatusCreated {
				away.Add(1)
			}
		})
	}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	healthy := func() {
		t.Helper()
		began := time.Now()
		c.get(t, "/healthz").is(t, http.StatusOK, "")
		if took := time.Since(began); took > time.Second {
			t.Errorf("the health was told after %s", took)
		}
	}
	until := func(what string, come func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience / 4); !come(); <-look.C {
			if time.Now().After(deadline) {
				t.Fatalf("nobody was %s", what)
			}
			healthy()
		}
	}
	until("sent away", func() bool { return away.Load() > 0 }) // then the queue is full
	modest := make(chan said, 1)
	go func() { modest <- c.post(t, "k", lunch, api.CallerHeader, "modest") }()
	until("told to ask for less", func() bool { return seen.of("POST /entries 429") > 0 })
	release()
	all.Wait()
	for i, a := range append(answers, <-modest) {
		switch a.status {
		case http.StatusCreated:
			continue
		case http.StatusTooManyRequests:
			a.is(t, http.StatusTooManyRequests, "share")
		default:
			a.is(t, http.StatusServiceUnavailable, "overloaded")
		}
		if i == flood {
			t.Errorf("the modest caller was sent away: %d %s", a.status, a.text)
		}
		if a.header.Get("Retry-After") == "" {
			t.Errorf("nobody knows when to come back: %v %s", a.header, a.text)
		}
	}
	if got, want := entriesIn(t, pool), flood+1-int(away.Load()); got != want {
		t.Errorf("%d entries are stored, and %d were answered with 201", got, want)
	}
	// They come again, and nothing is there twice.
	for i := range flood {
		for tries := 0; answers[i].status != http.StatusCreated && tries < 10; tries++ {
			answers[i] = c.post(t, fmt.Sprint("k", i), lunch, api.CallerHeader, "greedy")
		}
		answers[i].is(t, http.StatusCreated, "")
	}
	if got := entriesIn(t, pool); got != flood+1 {
		t.Errorf("%d entries are stored, want %d", got, flood+1)
	}
	seen.has(t, "POST /entries 429", "POST /entries 503", "GET /healthz 200")
}

// The server is killed between a request and its answer, before and after the entry is stored. The client sends the same
// again to another process, and the entry is there once.
func TestClientOfAServerThatDies(t *testing.T) {
	t.Parallel()
	for _, point := range []string{atWritten, atStored} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s, pool := newShell(t)
			victim, c := shell{url: s.url, env: []string{armedAt(point, 1)}}.serve(t)
			lunch := entryJSON("", "expenses:food", "assets:cash", "4.00")
			if lost := c.postAs(t, "lunch", lunch); lost.status != 0 {
				t.Fatalf("the server lives: %d %s", lost.status, lost.text)
			}
			if !victim.died(t) {
				t.Fatal("the server was to be killed")
			}
			stored := entriesIn(t, pool)
			if point == atStored && stored != 1 {
				t.Errorf("%d entries are stored, want 1", stored)
			}
			_, again := s.caller(t, newTally(t))
			answer := again.post(t, "lunch", lunch)
			answer.is(t, http.StatusCreated, "")
			if replayed := answer.header.Get(api.ReplayedHeader) == "true"; replayed != (stored == 1) {
				t.Errorf("%d entries were stored, and the answer is %v %s", stored, answer.header, answer.text)
			}
			if n := entriesIn(t, pool); n != 1 {
				t.Errorf("%d entries are stored, want 1", n)
			}
			s.work(t)
			food := again.get(t, "/balances/expenses:food", api.TokenHeader, answer.header.Get(api.TokenHeader), "Prefer", "wait=20")
			if food.is(t, http.StatusOK, ""); len(food.body.Balances) != 1 || food.body.Balances[0].Amount != "4.00" {
				t.Errorf("the balances are %s", food.text)
			}
		})
	}
}

// The worker is killed while it carries out a command; another one does, once.
func TestClientOfAWorkerThatDies(t *testing.T) {
	t.Parallel()
	s, pool := newShell(t)
	_, c := s.caller(t, newTally(t))
	accepted := c.post(t, "lunch", entryJSON("", "expenses:food", "assets:cash", "4.00"), "Prefer", "respond-async")
	accepted.is(t, http.StatusAccepted, "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, _, notes := shell{url: s.url, env: []string{armedAt(atStored, 1)}}.command(ctx, "work")
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the worker was to be killed: %v\n%s", err, notes)
	}
	if n := entriesIn(t, pool); n != 1 {
		t.Errorf("%d entries are stored, want 1", n)
	}
	if op := c.get(t, accepted.header.Get("Location")); op.body.State == "done" {
		t.Errorf("the operation is %s", op.text)
	}
	s.work(t)
	op := c.get(t, accepted.header.Get("Location"), "Prefer", "wait=20")
	if op.is(t, http.StatusOK, ""); op.body.State != "done" || op.body.Result.Key == "" {
		t.Errorf("the operation is %s", op.text)
	}
	if n := entriesIn(t, pool); n != 1 {
		t.Errorf("%d entries are stored, want 1", n)
	}
}
