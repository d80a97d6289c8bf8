package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
)

// logged keeps what is logged.
type logged struct{ livetest.Lines }

// with are the lines with a text in them.
func (l *logged) with(text string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

const (
	saysParked   = `msg="` + lineParked
	saysReleased = `msg="` + lineReleased
	saysStopped  = `msg="` + lineStopped
	saysPanicked = `msg="` + linePanicked
	saysLeftOut  = `msg="lines left out: `
)

// leftOut is how many lines were left out, as the log has it.
func (l *logged) leftOut() (n int) {
	for _, line := range l.with(saysLeftOut) {
		some, _ := strconv.Atoi(regexp.MustCompile(`left_out=(\d+)`).FindStringSubmatch(line)[1])
		n += some
	}
	return n
}

func TestLinesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines Lines
		var l logged
		log := l.Logger()
		for range 10_000 {
			lines.log(log, slog.LevelWarn, lineParked)
		}
		lines.log(log, slog.LevelWarn, lineStopped) // not hidden by the others
		if n := len(l.with(saysParked)); n != maxLines || len(l.with(saysStopped)) != 1 || l.leftOut() != 0 {
			t.Fatalf("%d lines, and %q", n, l.String())
		}
		<-time.After(time.Second)
		synctest.Wait()
		if n := len(l.with(saysLeftOut)); n != 1 || l.leftOut() != 10_000-maxLines {
			t.Errorf("%d lines tell of %d", n, l.leftOut())
		}
		// A steady flood of a thousand a second has ten in each second, and one more that counts.
		for range 5000 {
			lines.log(log, slog.LevelWarn, lineParked)
			<-time.After(time.Millisecond)
		}
		lines.flush(log)
		if n := len(l.with(saysParked)); n != 6*maxLines || n+l.leftOut() != 15_000 || len(l.with(saysLeftOut)) > 7 {
			t.Errorf("%d lines, %d left out in %d lines", n, l.leftOut(), len(l.with(saysLeftOut)))
		}
		before := len(l.String())
		lines.flush(log)
		<-time.After(time.Minute)
		if synctest.Wait(); len(l.String()) != before {
			t.Errorf("it goes on: %q", l.String()[before:])
		}
	})
}

func TestReasonInALine(t *testing.T) {
	t.Parallel()
	text := ReasonOf(errors.New("two\nlines\r\tand " + strings.Repeat("ä", 1000)))
	if strings.ContainsAny(text, "\n\r\t") || len(text) > maxReason || len(text) < maxReason-5 || !utf8.ValidString(text) {
		t.Errorf("%d bytes: %q", len(text), text)
	}
	for _, value := range []any{"hunter2", errors.New("hunter2"), struct{ Secret string }{"hunter2"}} {
		err := fmt.Errorf("wrapped: %w", Panicked("test: a handler", value))
		if text := ReasonOf(err); strings.Contains(text, "hunter2") || !strings.Contains(text, "test: a handler panicked") {
			t.Errorf("%q", text)
		}
	}
	if text := ReasonOf((*silent)(nil)); text == "" { // its Error panics
		t.Error("nothing is said")
	}
}

// One line when a sequence is parked, whatever its retries; one when it is released after that.
func TestLogOfASequence(t *testing.T) {
	t.Parallel()
	w, clock, l := newWorld(t), newSteps(), &logged{}
	bad := turned("hunter2", "b1")
	w.handle = func(_ context.Context, _ pgx.Tx, e eventstore.RecordedEvent) error {
		if bad.is(string(e.Data)) {
			return errors.New("no\nsuch account " + strings.Repeat("x", 1000))
		}
		return nil
	}
	w.run(w.worker(Config{Clock: clock.time, Attempts: 3, Logger: l.Logger()}))
	w.append("a", "hunter2", "a2")
	w.append("b", "b1")
	w.becomes("a", "retrying")
	w.becomes("b", "retrying")
	bad.off("b1")
	clock.step(time.Minute)
	w.becomes("b", "") // it has waited for nobody
	w.eventually("two attempts", func() bool { return w.letter("a").Attempts == 2 })
	if n := len(l.with("sequence")); n != 0 {
		t.Errorf("too early: %q", l.String())
	}
	clock.step(time.Minute)
	w.becomes("a", "parked")
	w.eventually("it is logged", func() bool { return len(l.with(saysParked)) == 1 })
	line := l.with(saysParked)[0]
	id := ask[string](w, "SELECT letter::text FROM daybook.letters WHERE sequence = 's-a'")
	for _, want := range []string{
		"level=WARN", "consumer=" + testConsumer, "version=1", "sequence=s-a ", "partition=", "position=", "type=test.happened", "kind=transient",
		"attempts=3", "letter=" + id, `error="no such account xx`,
	} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in %q", want, line)
		}
	}
	if strings.Contains(line, "hunter2") || len(line) > 1000 {
		t.Errorf("%q", line)
	}

	bad.off("hunter2")
	w.plan(0, 0, 1, "true")
	w.eventually("it is released", func() bool {
		clock.step(time.Minute)
		return w.state("a") == "" && len(l.with(saysReleased)) > 0
	})
	if lines := l.with(saysReleased); len(lines) != 1 || !strings.Contains(lines[0], "level=INFO") || !strings.Contains(lines[0], "sequence=s-a ") {
		t.Errorf("%q", lines)
	}
}

// A plan that stops is one line, however much of it goes on failing.
func TestLogOfAPlanThatStops(t *testing.T) {
	t.Parallel()
	l := &logged{}
	w, bad, stop := parkedWorld(t, 6, Config{Logger: l.Logger()})
	bad.off("v00", "v02", "v04")
	id := w.plan(0, 0, 2, "true")
	w.eventually("the plan stops", func() bool { return w.planned(id) == "stopped" })
	stop()
	lines := l.with(saysStopped)
	if len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "redrive="+id.String()) || !strings.Contains(lines[0], "failed=2") {
		t.Errorf("%q", lines)
	}
	if n := len(l.with(saysReleased)); n != 2 {
		t.Errorf("%d are released", n)
	}
}

// What is left out of the log when very many are parked is told when the worker ends, at the latest.
func TestLogOfManySequences(t *testing.T) {
	t.Parallel()
	const n = 90
	l := &logged{}
	began := time.Now()
	_, _, stop := parkedWorld(t, n, Config{Logger: l.Logger()})
	stop()
	lines := len(l.with(saysParked))
	if most := maxLines * (2 + int(time.Since(began)/time.Second)); lines < maxLines || lines > most || lines+l.leftOut() != n {
		t.Errorf("%d lines, want at most %d; %d are left out", lines, most, l.leftOut())
	}
}

//go:noinline
func runsIntoIt(value any) { panic(value) }

// The stack of a panic is logged once for a message, and nothing that may have been sent.
func TestLogOfAPanic(t *testing.T) {
	t.Parallel()
	w, clock, l := newWorld(t), newSteps(), &logged{}
	panics := map[string]any{"text": "hunter2", "error": errors.New("hunter2"), "nil": (*silent)(nil)}
	w.handle = func(_ context.Context, _ pgx.Tx, e eventstore.RecordedEvent) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = Panicked("test: a handler", r)
			}
		}()
		if value, ok := panics[string(e.Data)]; ok {
			runsIntoIt(value)
		}
		return nil
	}
	w.run(w.worker(Config{Clock: clock.time, Attempts: 3, Logger: l.Logger()}))
	for name := range panics {
		w.append(name, name)
	}
	w.eventually("all are parked", func() bool { clock.step(time.Minute); return len(l.with(saysParked)) == len(panics) })
	lines := l.with(saysPanicked)
	if len(lines) != len(panics) {
		t.Errorf("%q", lines)
	}
	for _, line := range lines {
		if !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "consumer.runsIntoIt") || strings.Contains(line, "0x") {
			t.Errorf("%q", line)
		}
	}
	if all := l.with("hunter2"); len(all) > 0 {
		t.Errorf("%q", all)
	}
}
