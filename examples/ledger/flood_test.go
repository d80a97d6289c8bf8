package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
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
	serving, c := s.caller(t, seen)
	const flood = queueLength + 40 // all places that there are, and more
	release := hold(t, pool)
	var all sync.WaitGroup
	for i := range flood {
		all.Go(func() { c.insist(t, fmt.Sprint("k", i), "greedy") })
	}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	until := func(what string, come func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience / 4); !come(); <-look.C {
			if time.Now().After(deadline) {
				t.Fatalf("nobody was %s", what)
			}
			began := time.Now()
			c.get(t, "/healthz").is(t, http.StatusOK, "")
			if took := time.Since(began); took > 5*time.Second { // the machine is under this flood too
				t.Errorf("the health was told after %s", took)
			}
		}
	}
	until("sent away", func() bool { return seen.of("POST /entries 503") > 0 })
	all.Go(func() {
		if statuses := c.insist(t, "k", "modest"); slices.Contains(statuses, http.StatusTooManyRequests) {
			t.Errorf("the modest caller was answered with %v", statuses)
		}
	})
	until("told to ask for less", func() bool { return seen.of("POST /entries 429") > 0 })
	release()
	all.Wait()
	if got := entriesIn(t, pool); got != flood+1 {
		t.Errorf("%d entries are stored, want %d", got, flood+1)
	}
	if n := strings.Count(serving.notes.String(), "requests are sent away"); n != 1 {
		t.Errorf("the server said %d times that it sends requests away, want once:\n%s", n, serving.notes)
	}
	t.Logf("answered: 201 %d times, 429 %d times, 503 %d times",
		seen.of("POST /entries 201"), seen.of("POST /entries 429"), seen.of("POST /entries 503"))
}

// insist posts an entry until that is done, coming again sooner than it is told to, and returns all statuses.
func (b caller) insist(t *testing.T, key, name string) (statuses []int) {
	lunch := entryJSON("", "expenses:food:"+key, "assets:cash:"+key, "1.00")
	again := time.NewTicker(150 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-again.C {
		a := b.post(t, key, lunch, api.CallerHeader, name)
		statuses = append(statuses, a.status)
		switch a.status {
		case http.StatusCreated:
			if a.header.Get(api.ReplayedHeader) != "" {
				t.Errorf("a command that was sent away had been carried out: %v %v", statuses, a.header)
			}
			return statuses
		case http.StatusTooManyRequests:
			a.is(t, http.StatusTooManyRequests, "share")
		default:
			a.is(t, http.StatusServiceUnavailable, "overloaded")
		}
		if a.header.Get("Retry-After") == "" {
			t.Errorf("nobody knows when to come back: %v %s", a.header, a.text)
		}
	}
	t.Errorf("it is never done: %v", statuses)
	return statuses
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
