package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/daybook-go/daybook/eventstore"
)

// errKnownKey: an outcome is stored under the key; nothing was written.
var errKnownKey = errors.New("postgres: key known")

// lookUps is how often an append meets an outcome that is gone when it looks for it. More than once only when keys are
// kept for no longer than an append takes.
const lookUps = 3

// once is the part of an append that makes it a command with a key.
type once struct {
	claim   eventstore.Claim
	outcome eventstore.Outcome
	request []byte
	lock    int64      // of the key; not taken when locked
	locked  bool       // the transaction has the lock, and has seen no outcome
	stored  *time.Time // when the outcome was stored, nil when it was not
}

// AppendOnce stores events and outcome in one transaction of its own and one round trip (three when there are hooks); see
// [eventstore.OnceAppender]. Callers with one key follow each other, over all processes. The outcome is kept for
// [Config.KeepKeys] at least.
//
// After [eventstore.ErrUnconfirmed] send the call again with the same Claim.Call: it comes back with its own outcome,
// whether it was stored then or now.
func (s *Store) AppendOnce(ctx context.Context, claim eventstore.Claim, outcome eventstore.Outcome, writes ...eventstore.Write) (eventstore.Outcome, error) {
	start := time.Now()
	got, err := s.appendOnce(ctx, claim, outcome, writes)
	s.observeOnce(start, got, err, writes)
	return got, err
}

func (s *Store) observeOnce(start time.Time, got eventstore.Outcome, err error, writes []eventstore.Write) {
	o := eventstore.AppendObservation{Streams: len(writes), Events: countEvents(writes), Duration: time.Since(start), Err: err}
	if got.Repeated {
		o.Events = 0
	}
	s.cfg.Observer.ObserveAppend(o)
}

func (s *Store) appendOnce(ctx context.Context, claim eventstore.Claim, outcome eventstore.Outcome, writes []eventstore.Write) (eventstore.Outcome, error) {
	p, err := s.planOnce(ctx, claim, outcome, writes)
	if err != nil {
		return eventstore.Outcome{}, err
	}
	for range lookUps {
		err = s.appendAgain(ctx, p)
		known := errors.Is(err, errKnownKey)
		if !known && !errors.Is(err, eventstore.ErrConflict) && !errors.Is(err, eventstore.ErrStreamClosed) {
			break
		}
		first, found, lookErr := s.FirstOutcome(ctx, claim)
		if lookErr != nil || found {
			return first, lookErr
		}
		if !known { // else the events that it met may be those of the first call
			break
		}
	}
	if err != nil {
		return eventstore.Outcome{}, p.explained(ctx, s.pool, err)
	}
	s.turnSoon()
	return p.ended(s.epoch), nil
}

func (s *Store) planOnce(ctx context.Context, claim eventstore.Claim, outcome eventstore.Outcome, writes []eventstore.Write) (*plan, error) {
	if err := eventstore.ValidateOnce(claim, outcome, writes); err != nil {
		return nil, err
	}
	p, err := s.plan(ctx, writes)
	if err != nil {
		return nil, err
	}
	p.once = &once{claim: claim, outcome: outcome, request: s.hashRequest(claim), lock: s.keyLock("key", claim)}
	if h := s.pool.held(ctx); h != nil && h.key != nil && *h.key == p.once.lock {
		return nil, &eventstore.InvalidError{
			Field: "key", Value: claim.Key, Reason: "is locked by the caller itself", Remedy: "append through what WithStreamsLocked gives",
		}
	}
	return p, nil
}

// hashRequest hashes what is asked so that who reads the table can neither try out what it was nor see that two keys
// asked for the same.
func (s *Store) hashRequest(claim eventstore.Claim) []byte {
	mac := hmac.New(sha256.New, s.secret)
	for _, part := range []string{claim.Scope, claim.Key} { // neither has a zero byte
		mac.Write([]byte(part))
		mac.Write([]byte{0})
	}
	mac.Write(claim.Request)
	return mac.Sum(nil)
}

// queueKey waits for the key. It comes before the locks of streams, whose order among each other is the same everywhere.
func (o *once) queueKey(b *pgx.Batch, sql *statements) {
	if o.locks() {
		b.Queue(sql.lockKey, o.lock)
	}
}

// locks reports whether there is a key whose lock the transaction does not have.
func (o *once) locks() bool { return o != nil && !o.locked }

// queueOutcome stores the outcome if there is none under the key, else it ends the transaction, and if the append before
// it was accepted. The statement sees both for itself: the answer of the append is not known before the end of the
// pipeline.
func (p *plan) queueOutcome(b *pgx.Batch) {
	n := len(p.writes)
	streams, versions, events := make([]string, n), make([]int64, n), make([]int32, n)
	for i, w := range p.writes {
		expected, _ := w.Expected.Exact()
		streams[i], events[i] = w.Stream.String(), int32(len(w.Events))
		versions[i] = int64(expected) + int64(len(w.Events))
	}
	o, sql := p.once, p.sql.storeOutcomeMany
	switch n {
	case 0:
		sql = p.sql.storeOutcomeAlone
		for _, s := range o.outcome.Streams {
			streams, versions, events = append(streams, s.Stream.String()), append(versions, int64(s.Version)), append(events, 0)
		}
	case 1:
		sql = p.sql.storeOutcomeOne
	}
	b.Queue(sql, o.claim.Scope, o.claim.Key, pgtype.UUID{Bytes: o.claim.Call, Valid: true}, o.request, int16(o.outcome.Kind), o.outcome.Code,
		o.outcome.Text, o.outcome.ContentType, notNil(o.outcome.Result), streams, versions, events, p.at,
	).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			o.stored = new(time.Time)
			if err := rows.Scan(o.stored); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// ended is the outcome of an append that was accepted.
func (p *plan) ended(epoch uuid.UUID) eventstore.Outcome {
	o, result := p.once.outcome, p.result(epoch)
	if len(o.Result) == 0 {
		o.Result = nil
	}
	o.Token, o.RecordedAt, o.At, o.Repeated = result.Token, result.RecordedAt, p.once.stored.UTC(), false
	if len(p.outcomes) > 0 {
		o.Streams = nil
	}
	for _, part := range p.outcomes {
		o.Streams = append(o.Streams, eventstore.OutcomeStream{Stream: part.stream, Version: part.version, Events: part.events})
	}
	return o
}

// FirstOutcome reads the outcome under the claim in one round trip, two when there is one that wrote events, one more for
// each further stream; see [eventstore.OnceAppender].
func (s *Store) FirstOutcome(ctx context.Context, claim eventstore.Claim) (eventstore.Outcome, bool, error) {
	if err := claim.Validate(); err != nil {
		return eventstore.Outcome{}, false, err
	}
	o, found, err := s.firstOutcome(ctx, s.pool, claim)
	if s.renewed(err) {
		o, found, err = s.firstOutcome(ctx, s.pool, claim)
	}
	if err != nil && !errors.Is(err, eventstore.ErrReusedKey) {
		err = fmt.Errorf("postgres: read outcome: %w", err)
	}
	return o, found, err
}

func (s *Store) firstOutcome(ctx context.Context, q eventQuerier, claim eventstore.Claim) (eventstore.Outcome, bool, error) {
	var o eventstore.Outcome
	var call pgtype.UUID
	var request []byte
	var kind int16
	var streams []string
	var versions []int64
	var events []int32
	err := q.QueryRow(ctx, s.sql.firstOutcome, claim.Scope, claim.Key).Scan(&call, &request, &kind, &o.Code, &o.Text, &o.ContentType, &o.Result,
		&streams, &versions, &events, &o.At)
	if errors.Is(err, pgx.ErrNoRows) {
		return eventstore.Outcome{}, false, nil
	}
	if err != nil {
		return eventstore.Outcome{}, false, err
	}
	if !hmac.Equal(request, s.hashRequest(claim)) {
		return eventstore.Outcome{}, false, &eventstore.ReusedKeyError{Scope: claim.Scope, Key: claim.Key}
	}
	o.Kind, o.At = eventstore.OutcomeKind(kind), o.At.UTC()
	o.Repeated = claim.Call == uuid.Nil || claim.Call != uuid.UUID(call.Bytes)
	if len(o.Result) == 0 {
		o.Result = nil
	}
	for i, text := range streams {
		stream, err := eventstore.ParseStreamID(text)
		if err != nil {
			return eventstore.Outcome{}, false, err
		}
		o.Streams = append(o.Streams, eventstore.OutcomeStream{Stream: stream, Version: eventstore.Version(versions[i]), Events: int(events[i])})
	}
	return o, true, s.findEvents(ctx, q, &o)
}

// findEvents fills what an outcome says of its events from the log.
func (s *Store) findEvents(ctx context.Context, q eventQuerier, o *eventstore.Outcome) error {
	var marks []eventstore.Mark
	mapped := false
	for _, part := range o.Streams {
		if part.Events == 0 {
			continue
		}
		from := part.Version
		if s.maps() {
			from = part.Version - eventstore.Version(part.Events) + 1
		}
		var last eventstore.RecordedEvent
		for e, err := range s.readStream(ctx, q, part.Stream, eventstore.Range{From: from, To: part.Version}) {
			if err != nil {
				return err
			}
			mapped, last = mapped || s.mapsEvent(e), e
		}
		if last.Version != part.Version {
			return fmt.Errorf("postgres: stream %q has no version %d, which an outcome speaks of", part.Stream, part.Version)
		}
		o.RecordedAt = last.RecordedAt
		marks = append(marks, eventstore.Mark{Partition: last.Partition, Position: last.Position, Streams: []uint32{eventstore.StreamHash(part.Stream)}})
	}
	if mapped {
		highest, err := s.highest(ctx)
		if err != nil {
			return err
		}
		for i := range marks {
			marks[i].Position = eventstore.PositionAt(max(marks[i].Position.Ordinal(), highest))
		}
	}
	if len(marks) > 0 {
		o.Token = eventstore.MakeToken(s.epoch, marks...)
	}
	return nil
}

// maps reports whether a route makes messages of events, whose positions only the append itself knows.
func (s *Store) maps() bool {
	for _, r := range s.cfg.Routes {
		if r.Map != nil {
			return true
		}
	}
	return false
}

func (s *Store) mapsEvent(e eventstore.RecordedEvent) bool {
	for _, r := range s.cfg.Routes {
		if r.Map != nil && r.Accepts(e.Stream, e.EventData) {
			return true
		}
	}
	return false
}
