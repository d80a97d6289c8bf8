package parking

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/retry"
)

// Failure is a failed attempt at a message. Environment is no failure of a message, and does not come here.
type Failure struct {
	Topic   string // of a relay's message; empty otherwise
	Message eventstore.RecordedEvent
	// Previous is the position of the message before it in its topic and partition; of a relay's message.
	Previous eventstore.Position
	Kind     eventstore.FailureKind
	Err      error
	// Handler is what failed, as people and fingerprints know it.
	Handler string
	At      time.Time
	// Due is when it is tried again. Zero: it is parked.
	Due time.Time
}

// Changes are what one transaction does to a set: queue them behind commit_batch, which locks the segment and refuses an
// owner that is none any more, and call Committed when the transaction is committed. Nothing of the set changes before.
// Changes that were not committed are thrown away. They are not safe for concurrent use.
type Changes struct {
	set     *Set
	byKey   map[Key]*change
	order   []Key
	letters []func(*pgx.Batch)
	held    []Held
	ends    []func(*pgx.Batch)
	raises  bool
	news    News
}

type change struct {
	seq            Sequence
	before         bool // it was in the set
	altered        bool // more than counted
	gone           bool
	wake           bool // something of it is held
	dropTo         eventstore.Position
	item           *Item
	begins, leaves bool // of the item
}

// Change begins changes to the set.
func (s *Set) Change() *Changes { return &Changes{set: s} }

// Empty reports whether nothing is to be done.
func (c *Changes) Empty() bool {
	return len(c.byKey) == 0 && len(c.letters) == 0 && len(c.held) == 0 && len(c.ends) == 0
}

// Raises reports whether sequences are added or removed: what commit_batch is to be told.
func (c *Changes) Raises() bool { return c.raises }

// Added is how many sequences are added.
func (c *Changes) Added() int {
	n := 0
	for _, ch := range c.byKey {
		if !ch.before && !ch.gone {
			n++
		}
	}
	return n
}

// Aside reports whether messages of the sequence are to be passed by, as it is after the changes so far.
func (c *Changes) Aside(k Key) bool {
	if ch, ok := c.byKey[k]; ok {
		return !ch.gone
	}
	_, ok := c.set.byKey[k]
	return ok
}

func (c *Changes) of(k Key) *change {
	if ch, ok := c.byKey[k]; ok {
		return ch
	}
	ch := &change{}
	if e, ok := c.set.byKey[k]; ok {
		ch.seq, ch.before = e.Sequence, true
	}
	if c.byKey == nil {
		c.byKey = map[Key]*change{}
	}
	c.byKey[k] = ch
	c.order = append(c.order, k)
	return ch
}

// begin adds the sequence when it is not there.
func (c *Changes) begin(k Key, partition int, at eventstore.Position, now time.Time) *change {
	ch := c.of(k)
	if ch.before && !ch.gone || ch.altered && !ch.gone {
		return ch
	}
	ch.seq = Sequence{Key: k, Partition: partition, First: at, Last: at, Since: now, State: Draining}
	ch.altered, ch.gone = true, false
	c.raises = true
	return ch
}

// Park sets a sequence aside because of a message of it that was not tried before, or at which a sequence that drains has
// stopped. The message becomes an open letter; a letter of it that there was goes on.
func (c *Changes) Park(f Failure) {
	ch := c.begin(Key{f.Topic, f.Message.PartitionKey}, f.Message.Partition, f.Message.Position, f.At)
	ch.seq.First, ch.seq.Previous = f.Message.Position, f.Previous
	ch.seq.Last = later(ch.seq.Last, f.Message.Position)
	ch.fail(f)
	c.letter(c.set.texts.park, f, 1)
	c.parks(f, 1)
}

// Failed notes another failure of an open letter. A letter that is being redriven begins a new round.
func (c *Changes) Failed(l Letter, f Failure, redriven bool) {
	ch := c.of(l.Key)
	ch.fail(f)
	round := l.Round + 1
	if redriven {
		round = 1
	}
	c.letter(c.set.texts.failed, f, round)
	c.parks(f, l.Attempts+1)
}

func (ch *change) fail(f Failure) {
	ch.altered = true
	ch.seq.State, ch.seq.DueAt = Parked, time.Time{}
	if !f.Due.IsZero() {
		ch.seq.State, ch.seq.DueAt = Retrying, f.Due
	}
}

func (c *Changes) letter(sql string, f Failure, round int) {
	o := c.set.owner
	state := Parked
	if !f.Due.IsZero() {
		state = Retrying
	}
	args := []any{
		LetterID(o, f.Topic, f.Message.Position), string(state), f.Kind.String(), round, retry.Fingerprint(f.Handler, f.Kind, f.Err),
		retry.Chain(f.Err), f.At, f.Handler, Program(),
	}
	if sql == c.set.texts.park {
		args = append(args, o.Consumer, o.Version, f.Topic, f.Message.PartitionKey, f.Message.Partition, f.Message.Position.Ordinal())
		args = append(args, columnsOf(f.Message)...)
	}
	c.letters = append(c.letters, func(b *pgx.Batch) { b.Queue(sql, args...) })
}

// Passed counts a message of a sequence that is set aside, which is passed by.
func (c *Changes) Passed(k Key, at eventstore.Position) {
	ch := c.of(k)
	ch.seq.Queued++
	ch.seq.Last = later(ch.seq.Last, at)
}

// Applied closes a letter: its message has taken effect in this transaction. What is queued behind is next.
func (c *Changes) Applied(l Letter, at time.Time) {
	c.Close(l.ID, LetterApplied, "", "", at)
	ch := c.of(l.Key)
	ch.altered = true
	ch.seq.State, ch.seq.DueAt = Draining, time.Time{}
	ch.seq.First = eventstore.PositionAt(l.Message.Position.Ordinal() + 1)
}

// Close closes a letter that is open.
func (c *Changes) Close(letter uuid.UUID, state, by, reason string, at time.Time) {
	sql := c.set.texts.closed
	c.letters = append(c.letters, func(b *pgx.Batch) { b.Queue(sql, letter, state, at, by, reason) })
}

// Advance notes that n messages of what is queued have taken effect in this transaction, and everything up to a position.
func (c *Changes) Advance(k Key, through eventstore.Position, n int) {
	ch := c.of(k)
	ch.altered = true
	ch.seq.First = later(ch.seq.First, eventstore.PositionAt(through.Ordinal()+1))
	ch.seq.Queued = max(ch.seq.Queued-int64(n), 0)
}

// Drain lets what is queued behind go on, because there is no open letter.
func (c *Changes) Drain(k Key) {
	ch := c.of(k)
	ch.altered = true
	ch.seq.State, ch.seq.DueAt = Draining, time.Time{}
}

// Follow notes the message of a relay's topic and partition before the first that has not taken effect.
func (c *Changes) Follow(k Key, previous eventstore.Position) {
	ch := c.of(k)
	ch.altered, ch.seq.Previous = true, previous
}

// Altered reports whether sequences are more than counted: they come, go, or change their state or place.
func (c *Changes) Altered() bool {
	for _, ch := range c.byKey {
		if ch.altered {
			return true
		}
	}
	return false
}

// Release lets a sequence go on with everybody else. Nothing of it may be queued any more.
func (c *Changes) Release(k Key) {
	ch := c.of(k)
	ch.altered, ch.gone = true, true
	c.raises = true
}

// Await sets a sequence aside that waits for a message of it to be held, without a failure.
func (c *Changes) Await(k Key, partition int, at eventstore.Position, now time.Time) {
	ch := c.begin(k, partition, at, now)
	ch.seq.Last = later(ch.seq.Last, at)
	if at.Before(ch.seq.First) {
		ch.altered, ch.seq.First = true, at
	}
}

// Hold keeps a message that is queued, or, without bytes, its place. A place that was kept is filled, and a message that is
// there stays as it is.
func (c *Changes) Hold(h Held) {
	c.held = append(c.held, h)
	if ch := c.of(h.Key); h.Present && (h.Fill || !h.Message.Position.After(ch.seq.First)) {
		ch.wake = true
	}
}

// Forget gives up the place that is kept for a message, unless its bytes are there. What is queued behind may be next.
func (c *Changes) Forget(k Key, at eventstore.Position) {
	o, x := c.set.owner, c.set.texts
	c.ends = append(c.ends, func(b *pgx.Batch) { b.Queue(x.forget, o.Consumer, o.Version, k.Topic, k.Sequence, at.Ordinal()) })
	c.of(k).wake = true
}

// Also adds statements of the caller's own; nil adds none.
func (c *Changes) Also(queue func(*pgx.Batch)) {
	if queue != nil {
		c.ends = append(c.ends, queue)
	}
}

// Drop forgets what is held of a sequence up to a position.
func (c *Changes) Drop(k Key, through eventstore.Position) { c.of(k).dropTo = through }

// Queue adds the statements. Call it once, behind commit_batch.
func (c *Changes) Queue(b *pgx.Batch) {
	o, x := c.set.owner, c.set.texts
	var counted counts
	for _, k := range c.order {
		ch := c.byKey[k]
		s := ch.seq
		switch {
		case ch.gone && ch.before:
			b.Queue(x.remove, o.Consumer, o.Version, k.Topic, k.Sequence)
		case ch.gone:
		case !ch.before && ch.altered:
			b.Queue(x.add, o.Consumer, o.Version, k.Topic, k.Sequence, s.Partition, string(s.State), dueOf(s), s.First.Ordinal(),
				s.Last.Ordinal(), s.Previous.Ordinal(), s.Queued, s.Since, hash(k.Sequence))
		case ch.altered:
			b.Queue(x.alter, o.Consumer, o.Version, k.Topic, k.Sequence, string(s.State), dueOf(s), s.First.Ordinal(), s.Last.Ordinal(), s.Previous.Ordinal(),
				s.Queued)
		case ch.before:
			counted.add(s)
		}
	}
	if len(counted.topics) > 0 {
		b.Queue(x.count, o.Consumer, o.Version, counted.topics, counted.sequences, counted.queued, counted.last)
	}
	for _, queue := range c.letters {
		queue(b)
	}
	queueHeld(b, o, x, c.held)
	for _, k := range c.order {
		if ch := c.byKey[k]; !ch.dropTo.IsZero() {
			b.Queue(x.drop, o.Consumer, o.Version, k.Topic, k.Sequence, ch.dropTo.Ordinal())
		}
	}
	for _, queue := range c.ends {
		queue(b)
	}
}

// Committed brings the set up to date. now is when what drains is due.
func (c *Changes) Committed(now time.Time) {
	for _, k := range c.order {
		ch := c.byKey[k]
		switch {
		case ch.gone:
			if e, ok := c.set.byKey[k]; ok && e.people {
				c.news.Released = append(c.news.Released, e.Sequence)
			}
			c.set.remove(k)
			continue
		case ch.altered:
			c.set.put(ch.seq, now)
		case ch.before:
			e := c.set.byKey[k]
			e.Queued, e.Last = ch.seq.Queued, ch.seq.Last
			if ch.wake && e.State == Draining {
				c.set.schedule(e, now)
			}
		default:
			continue
		}
		e := c.set.byKey[k]
		switch {
		case ch.begins:
			e.item = ch.item
		case ch.leaves:
			e.item = nil
		}
	}
}

// counts are the rows of sequences of which messages were passed by: one statement for all.
type counts struct {
	topics, sequences []string
	queued, last      []int64
}

func (c *counts) add(s Sequence) {
	c.topics = append(c.topics, s.Topic)
	c.sequences = append(c.sequences, s.Sequence)
	c.queued = append(c.queued, s.Queued)
	c.last = append(c.last, s.Last.Ordinal())
}

func dueOf(s Sequence) *time.Time {
	if s.DueAt.IsZero() {
		return nil
	}
	return &s.DueAt
}

func later(a, b eventstore.Position) eventstore.Position {
	if a.Before(b) {
		return b
	}
	return a
}
