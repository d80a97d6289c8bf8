package memory_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// Keys stay for their time whatever the clock does, and go afterwards.
func TestKeysAreKeptAndGo(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	store := memory.New(memory.Config{KeepKeys: time.Hour, Clock: func() time.Time { return time.UnixMicro(now.Load()) }})
	step := func(d time.Duration) { now.Add(d.Microseconds()) }
	there := func(key string) bool {
		t.Helper()
		_, found, err := store.FirstOutcome(context.Background(), eventstore.Claim{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	put := func(key string) {
		t.Helper()
		if o, err := store.AppendOnce(context.Background(), eventstore.Claim{Key: key}, eventstore.Outcome{}); err != nil || o.Repeated {
			t.Fatalf("%s: %+v, %v", key, o, err)
		}
	}
	put("first")
	step(30 * time.Minute)
	put("second")
	step(30 * time.Minute) // the first is as old as it is kept
	if !there("first") || !there("second") {
		t.Error("a key went within its time")
	}
	step(time.Microsecond)
	if there("first") || !there("second") {
		t.Error("the first key did not go, or the second did")
	}
	put("first")
	step(-5 * time.Hour)
	if !there("first") || !there("second") {
		t.Error("a clock that went back took a key away")
	}
	step(10 * time.Hour)
	if there("first") || there("second") {
		t.Error("a key stays")
	}
}

// A command inside WithStreamsLocked that needs what another has does not wait for it for ever.
func TestBusyLocks(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	a, b := eventstore.NewStreamID("a", "1"), eventstore.NewStreamID("b", "1")
	event := eventstore.EventData{Type: "t"}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	inside, goOn := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- store.WithStreamsLocked(ctx, nil, []eventstore.StreamID{a}, func(ctx context.Context, s eventstore.LockedStreams) error {
			close(inside)
			<-goOn
			_, err := s.Append(ctx, eventstore.To(a, eventstore.NoStream, event))
			return err
		})
	}()
	<-inside
	err := store.WithStreamsLocked(ctx, nil, []eventstore.StreamID{b}, func(ctx context.Context, s eventstore.LockedStreams) error {
		_, err := s.Append(ctx, eventstore.To(b, eventstore.NoStream, event), eventstore.To(a, eventstore.NoStream, event))
		return err
	})
	if !errors.Is(err, eventstore.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestNegativeKeepKeysIsRefused(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("accepted")
		}
	}()
	memory.New(memory.Config{KeepKeys: -1})
}

// A command that is sent twice takes effect once.
func ExampleStore_AppendOnce() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	account := eventstore.NewStreamID("account", "42")
	claim := eventstore.Claim{Scope: "customer-7", Key: "8e03978e", Request: []byte("withdraw 5 from account 42")}
	for range 2 { // the answer got lost, so the client sends it again
		first, found, err := store.FirstOutcome(ctx, claim)
		if err == nil && !found {
			withdrawn := eventstore.EventData{Type: "account.withdrawn", Data: []byte("5")}
			first, err = store.AppendOnce(ctx, claim, eventstore.Outcome{Result: []byte("done")}, eventstore.To(account, eventstore.NoStream, withdrawn))
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s at version %d, repeated: %t\n", first.Result, first.Versions()[account], first.Repeated)
	}
	claim.Request = []byte("withdraw 500 from account 42")
	_, _, err := store.FirstOutcome(ctx, claim)
	fmt.Println(errors.Is(err, eventstore.ErrReusedKey))
	// Output:
	// done at version 1, repeated: false
	// done at version 1, repeated: true
	// true
}

// A stream that many write to at once is locked for a decision that must not be made in vain.
func ExampleStore_WithStreamsLocked() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	account := eventstore.NewStreamID("account", "42")
	err := store.WithStreamsLocked(ctx, nil, []eventstore.StreamID{account}, func(ctx context.Context, s eventstore.LockedStreams) error {
		var version eventstore.Version
		for e, err := range store.ReadStream(ctx, account, eventstore.Range{}) {
			if err != nil {
				return err
			}
			version = e.Version
		}
		result, err := s.Append(ctx, eventstore.To(account, eventstore.Exactly(version), eventstore.EventData{Type: "account.opened"}))
		fmt.Println("version", result.Versions[account])
		return err
	})
	fmt.Println(err)
	// Output:
	// version 1
	// <nil>
}
