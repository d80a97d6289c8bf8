package consumer

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/daybook-go/daybook/internal/panics"
	"github.com/daybook-go/daybook/internal/parking"
	"github.com/daybook-go/daybook/internal/retry"
)

const (
	// maxLines bounds how many lines of one kind are logged in any second.
	maxLines = 10
	// maxReason bounds the text of an error in a line, in bytes.
	maxReason = 500
	// maxStacks bounds the stacks that are known; they are as many as there are places that panic.
	maxStacks = 100
)

// The lines about sequences. Each kind has a bound of its own, so that many of one do not hide the only one of another.
const (
	lineParked   = "sequence is parked, and waits for people"
	lineReleased = "sequence is released, and goes on with the others"
	lineStopped  = "redrive stopped, because too much of it failed"
	linePanicked = "handler panicked"
)

// Lines bounds what is logged about single sequences: at most ten lines of each kind in any second; what that leaves out is
// counted in one line, a second later. Workers of one handler share one. The zero value works. Safe for concurrent use.
type Lines struct {
	mu     sync.Mutex
	kinds  map[string]*lineKind
	stacks map[uint64]struct{}
}

type lineKind struct {
	logged  [maxLines]time.Time // when the last ones were, as a ring
	next    int
	leftOut int
	timer   *time.Timer
}

func (l *Lines) log(log *slog.Logger, level slog.Level, text string, attrs ...any) {
	if !log.Enabled(context.Background(), level) {
		return
	}
	if l.fits(log, level, text) {
		log.Log(context.Background(), level, text, attrs...)
	}
}

// fits counts a line, and sees to it that what is left out is told of.
func (l *Lines) fits(log *slog.Logger, level slog.Level, text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds == nil {
		l.kinds = map[string]*lineKind{}
	}
	k := l.kinds[text]
	if k == nil {
		k = &lineKind{}
		l.kinds[text] = k
	}
	now := time.Now()
	if oldest := k.logged[k.next]; oldest.IsZero() || now.Sub(oldest) >= time.Second {
		k.logged[k.next] = now
		k.next = (k.next + 1) % maxLines
		return true
	}
	if k.leftOut++; k.leftOut == 1 {
		k.timer = time.AfterFunc(time.Second, func() { l.tell(log, level, text) })
	}
	return false
}

// tell says how many lines of a kind were left out, if any were since it was said last.
func (l *Lines) tell(log *slog.Logger, level slog.Level, text string) {
	l.mu.Lock()
	n := 0
	if k := l.kinds[text]; k != nil && k.leftOut > 0 {
		n, k.leftOut = k.leftOut, 0
		k.timer.Stop()
	}
	l.mu.Unlock()
	if n > 0 {
		log.Log(context.Background(), level, "lines left out: "+text, "left_out", n)
	}
}

// flush tells of everything that was left out, because nobody may be there to tell of it later.
func (l *Lines) flush(log *slog.Logger) {
	for _, k := range []struct {
		text  string
		level slog.Level
	}{{lineParked, slog.LevelWarn}, {lineReleased, slog.LevelInfo}, {lineStopped, slog.LevelWarn}, {linePanicked, slog.LevelError}} {
		l.tell(log, k.level, k.text)
	}
}

// fresh notes a stack, and reports whether it was not known. Whether the worker was at a first attempt or a later one makes
// no difference.
func (l *Lines) fresh(stack string) bool {
	stack, _, _ = strings.Cut(stack, "internal/consumer.(*Tenure).")
	h := fnv.New64a()
	h.Write([]byte(stack))
	sum := h.Sum64()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.stacks[sum]; known || len(l.stacks) >= maxStacks {
		return false
	}
	if l.stacks == nil {
		l.stacks = map[uint64]struct{}{}
	}
	l.stacks[sum] = struct{}{}
	return true
}

// logNews logs what a committed transaction has done to sequences.
func (t *Tenure) logNews(news parking.News) {
	lines, log, owner := t.w.cfg.Lines, t.w.log, t.lease.parked.Owner()
	for _, p := range news.Parked {
		m := p.Message
		lines.log(log, slog.LevelWarn, lineParked, append(placeOf(p.Topic, m.PartitionKey, m.Partition),
			"position", m.Position.String(), "type", m.Type, "kind", p.Kind.String(), "attempts", p.Attempts,
			"letter", parking.LetterID(owner, p.Topic, m.Position).String(), "error", ReasonOf(p.Err))...)
	}
	for _, s := range news.Released {
		lines.log(log, slog.LevelInfo, lineReleased, append(placeOf(s.Topic, s.Sequence, s.Partition), "since", s.Since)...)
	}
	for _, p := range news.Stopped {
		lines.log(log, slog.LevelWarn, lineStopped, "redrive", p.Redrive.String(), "failed", p.Failed)
	}
}

func placeOf(topic, sequence string, partition int) []any {
	attrs := []any{"sequence", sequence, "partition", partition}
	if topic != "" {
		attrs = append(attrs, "topic", topic)
	}
	return attrs
}

// ReasonOf is what a line in the log says of an error, 500 bytes of it at most: of a panic not its value, which may hold what was sent.
func ReasonOf(err error) string {
	if p := panicOf(err); p != nil {
		return oneLine(p.what + " panicked: " + panics.Describe(p.value))
	}
	texts := retry.Chain(err) // survives methods that panic
	if len(texts) == 0 {
		return ""
	}
	return oneLine(texts[0])
}

// oneLine makes of a text a line of at most maxReason bytes.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= maxReason {
		return text
	}
	const more = "…"
	cut := maxReason - len(more)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}

// LogPanic logs where the panic came from that an attempt has ended in, if it has, once: not for attempts after the first, unless it came from elsewhere before.
func (t *Tenure) LogPanic(f parking.Failure, attempt int) {
	p := panicOf(f.Err)
	if p == nil || !t.w.cfg.Lines.fresh(p.stack) && attempt != 1 {
		return
	}
	m := f.Message
	t.w.cfg.Lines.log(t.w.log, slog.LevelError, linePanicked, append(placeOf(f.Topic, m.PartitionKey, m.Partition),
		"position", m.Position.String(), "type", m.Type, "attempt", attempt, "panic", oneLine(p.what+": "+panics.Describe(p.value)), "stack", p.stack)...)
}

// panicOf finds the panic in an error, whose methods may panic themselves.
func panicOf(err error) (p *panicError) {
	defer func() {
		if recover() != nil {
			p = nil
		}
	}()
	errors.As(err, &p)
	return p
}
