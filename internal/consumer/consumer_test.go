package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	code := func(c string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: c}) }
	for name, c := range map[string]struct {
		err           error
		dead          bool
		want, handler kind
	}{
		"fence":                 {code("DB002"), false, fenced, failure},
		"checkpoint":            {code("DB003"), false, fenced, failure},
		"wrong isolation":       {code("DB001"), false, failure, failure},
		"shut down":             {code("57P01"), true, environment, environment},
		"starting":              {code("57P03"), false, environment, environment},
		"too many":              {code("53300"), false, environment, environment},
		"disk full":             {code("53100"), false, environment, environment},
		"connection":            {code("08006"), true, environment, environment},
		"io":                    {code("58030"), false, environment, environment},
		"serialization":         {code("40001"), false, environment, environment},
		"deadlock":              {code("40P01"), false, environment, environment},
		"lock timeout":          {code("55P03"), false, environment, environment},
		"standby":               {code("25006"), false, environment, environment},
		"statement timeout":     {code("57014"), false, failure, failure},
		"rested too long":       {code("25P03"), true, failure, failure},
		"older than the schema": {code("DB006"), false, environment, environment},
		"unique":                {code("23505"), false, failure, failure},
		"syntax":                {code("42601"), false, failure, failure},
		"dead":                  {errors.New("conn closed"), true, environment, environment},
		"network":               {&net.OpError{Op: "read", Err: errors.New("reset")}, false, environment, environment},
		"over a gigabyte":       {fmt.Errorf("apply: %w", errors.New("write failed: message body too large")), true, failure, failure},
		"end of file":           {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), false, environment, environment},
		"busy":                  {fmt.Errorf("append: %w", eventstore.ErrBusy), false, environment, environment},
		"history":               {&eventstore.HistoryError{Reason: "x"}, false, history, failure},
		"user":                  {errors.New("no"), false, failure, failure},
		"canceled by handler":   {fmt.Errorf("call: %w", context.Canceled), true, environment, failure},
		"timed out by handler":  {context.DeadlineExceeded, true, environment, failure},
	} {
		if got := classify(c.err, c.dead); got != c.want {
			t.Errorf("%s: classify gives %d, want %d", name, got, c.want)
		}
		if got := classifyHandler(c.err, c.dead); got != c.handler {
			t.Errorf("%s: classifyHandler gives %d, want %d", name, got, c.handler)
		}
	}
}

func TestBackoffGrowsAndEnds(t *testing.T) {
	t.Parallel()
	var b backoff
	for _, want := range []time.Duration{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		want *= time.Millisecond
		if got := b.next(); got < want/2 || got > want {
			t.Errorf("the pause is %v, want between %v and %v", got, want/2, want)
		}
	}
	b.reset()
	if got := b.next(); got > firstPause {
		t.Errorf("after a reset the pause is %v", got)
	}
}

func TestPatientlyWaitsOutTheEnvironment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		err := Patiently(t.Context(), func(context.Context) error {
			if n++; n < 20 {
				return &pgconn.PgError{Code: "57P03"}
			}
			return nil
		})
		if err != nil || n != 20 {
			t.Errorf("%v after %d calls", err, n)
		}
		bad := errors.New("not installed")
		if err := Patiently(t.Context(), func(context.Context) error { return bad }); !errors.Is(err, bad) {
			t.Errorf("another error gives %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := Patiently(ctx, func(context.Context) error { return &pgconn.PgError{Code: "57P03"} }); err == nil {
			t.Error("the end of the context gives no error")
		}
	})
}

func TestSignals(t *testing.T) {
	t.Parallel()
	here := place{Ref{"s", "signals", 1}, 0, uuid.New()}
	if _, moves := ReachedBy(here.ref, here.epoch); moves != nil {
		t.Error("nobody works, and there is a channel")
	}
	signals.enter(here, Reached{Applied: ProgressAt(eventstore.PositionAt(3)), Home: "a"})
	signals.enter(here, Reached{Applied: ProgressAt(eventstore.PositionAt(4)), Home: "b"}) // takes over
	if _, moves := ReachedBy(here.ref, uuid.New()); moves != nil {
		t.Error("another store's worker answers")
	}
	p, moves := ReachedBy(here.ref, here.epoch)
	if p.Applied.Floor() != eventstore.PositionAt(4) || p.Home != "b" || moves == nil {
		t.Errorf("progress is %v %v", p, moves)
	}
	signals.move(here, Reached{Applied: ProgressAt(eventstore.PositionAt(9)), Home: "b"})
	<-moves
	_, moves = ReachedBy(here.ref, here.epoch)
	signals.leave(here)
	<-moves
	_, moves = ReachedBy(here.ref, here.epoch)
	signals.leave(here)
	<-moves
	if _, moves := ReachedBy(here.ref, here.epoch); moves != nil {
		t.Error("everybody has left, and there is a channel")
	}
}

func TestHandlerErrorHasNoPayload(t *testing.T) {
	t.Parallel()
	e := &HandlerError{
		Consumer: "balances", Version: 2, Attempts: 5, Err: io.EOF,
		Event: eventstore.RecordedEvent{
			EventData: eventstore.EventData{Type: "a.b", Data: []byte("secret")}, Stream: eventstore.StreamID{Category: "a", ID: "1"},
			Version: 7, Position: eventstore.PositionAt(42),
		},
	}
	text := e.Error()
	for _, part := range []string{`"balances" version 2`, `"a.b"`, `"a-1" version 7`, "position 42", "5 times", "EOF"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
	if strings.Contains(text, "secret") || !errors.Is(e, io.EOF) {
		t.Errorf("the text is %q", text)
	}
}

func TestInside(t *testing.T) {
	t.Parallel()
	a, b := Ref{"s", "a", 1}, Ref{"s", "a", 2}
	ctx := within(t.Context(), a)
	if !Inside(ctx, a) || Inside(ctx, b) || Inside(t.Context(), a) {
		t.Error("a context belongs to the wrong consumer")
	}
}
