package outbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

const (
	// lookEvery is how often the relay looks for topics that somebody has begun to follow.
	lookEvery = time.Second
)

// publishing is the work of a relay during one tenure. One goroutine runs it; another reads the next page meanwhile.
type publishing struct {
	*segment
	first, last int // its partitions
	tenure      *consumer.Tenure
	epoch       uuid.UUID
	chains      *chains
	lanes       *lanes
	putAside

	through eventstore.Position // everything up to here is published
	read    eventstore.Position // and read
	atEnd   bool                // the last page was not full
	moved   time.Time           // of the cursor
	unsaved bool                // messages were published since
	broken  bool                // chains hold what was not published
	headed  eventstore.Position // heads say so for all partitions
	heads   time.Time           // when that was
	fresh   bool                // a topic became known since
	untold  bool                // the broker did not take some of them
	looked  time.Time           // for topics

	rest    eventstore.OutboxPage // what is left of the page in hand
	ahead   chan pageRead         // a page that is being read, or nil
	readers sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context
}

// begin learns what was published before this tenure.
func (r *segment) begin(ctx context.Context, t *consumer.Tenure) (*publishing, error) {
	first, last := t.Partitions()
	l := &publishing{
		segment: r, tenure: t, epoch: r.rows.Epoch(), chains: newChains(first, last), through: t.Floor(), read: t.Floor(),
		first: first, last: last,
	}
	if last == r.rows.Partitions()-1 {
		l.last = math.MaxInt32 // a row made by hand must not be passed by in silence
	}
	rows, err := t.DB().Query(ctx, r.sql(tailsSQL), r.ref.Name, r.ref.Version, l.first, l.last)
	if err != nil {
		return nil, fmt.Errorf("outbox: read the last messages sent: %w", err)
	}
	var (
		topic     string
		partition int
		position  int64
	)
	_, err = pgx.ForEachRow(rows, []any{&topic, &partition, &position}, func() error {
		l.chains.restore(topic, partition, eventstore.PositionAt(position))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: read the last messages sent: %w", err)
	}
	if err := l.look(ctx); err != nil {
		return nil, err
	}
	l.lanes = openLanes(r.cfg.Lanes, newEncoder(l.epoch, r.ref.Store), r.publisher)
	r.watches(l.lanes)
	l.ctx, l.stop = context.WithCancel(ctx)
	l.tail.enter()
	return l, nil
}

func (l *publishing) end() {
	l.tail.leave()
	l.stop()
	l.readers.Wait()
	l.lanes.close()
}

// look finds topics that somebody follows, and a history that is no longer the one that this process knows.
func (l *publishing) look(ctx context.Context) error {
	var (
		epoch  string
		topics []string
	)
	if err := l.tenure.DB().QueryRow(ctx, l.sql(lookSQL)).Scan(&epoch, &topics); err != nil {
		return fmt.Errorf("outbox: look for topics: %w", err)
	}
	if epoch != l.epoch.String() {
		return consumer.Stop(&eventstore.HistoryError{
			Reason: fmt.Sprintf("the store's epoch has changed from %s to %s while the program ran", l.epoch, epoch),
			Remedy: "restart the program",
		})
	}
	topics = append(topics, l.cfg.HeadTopics...)
	slices.Sort(topics)
	l.fresh = l.chains.follow(slices.Compact(topics)) || l.fresh
	l.looked = time.Now()
	return nil
}

// step publishes one page, and heads when they are due.
func (l *publishing) step(ctx context.Context) error {
	if tended, err := l.tend(ctx); err != nil || tended && l.full() {
		return err // it goes first: the next page may have to wait until there is room
	}
	page, err := l.next(ctx)
	if err != nil {
		if errors.Is(err, eventstore.ErrHistory) && ctx.Err() == nil {
			return consumer.Stop(fmt.Errorf("outbox: read after position %s: %w", l.read, err))
		}
		return fmt.Errorf("outbox: read after position %s: %w", l.read, err)
	}
	if err := l.tenure.Hold(); err != nil {
		return err
	}
	if time.Since(l.looked) >= lookEvery {
		if err := l.look(ctx); err != nil {
			return err
		}
	}
	page = l.cut(page)
	for i := range page.Messages {
		l.queue(&page.Messages[i])
	}
	l.tenure.Budget().First(l.tenure.Now(), len(page.Messages))
	heads := 0
	if at := l.headsAt(page.Through); !at.IsZero() && !time.Now().Before(at) {
		heads = l.chains.heads(page.Through, l.lanes.add)
		l.headed, l.heads, l.fresh, l.untold = page.Through, time.Now(), false, false
	}
	if len(page.Messages)+heads > 0 {
		if err := l.publish(ctx, page.Through); err != nil {
			l.broken = true
			return err
		}
	}
	l.through = page.Through
	if len(page.Messages) > 0 {
		l.cfg.probe(probePublished)
	}
	l.unsaved = l.unsaved || len(page.Messages) > 0
	if l.atEnd && time.Since(l.moved) < l.rests() && l.changes == nil {
		return nil
	}
	return l.commit()
}

// headsAt is when heads are due, because some partition may have been told less than a position; zero when none has.
func (l *publishing) headsAt(through eventstore.Position) time.Time {
	switch {
	case l.fresh, len(l.chains.followed) > 0 && l.headed.Before(through):
		return l.heads.Add(l.cfg.HeadEvery)
	case l.untold:
		return l.heads.Add(max(l.cfg.HeadEvery, lookEvery))
	}
	return time.Time{}
}

// publish returns when the broker has taken all that is in the lanes, or what stands in its place. It waits for the broker
// without end, and sets aside what is refused for its own sake.
func (l *publishing) publish(ctx context.Context, through eventstore.Position) error {
	defer l.lanes.clear()
	l.reach = through
	for {
		began := time.Now()
		messages, heads, refused := l.lanes.round(l.tenure.Work())
		l.took.note(l.lanes)
		seen := eventstore.PublishObservation{Messages: messages, Heads: heads, Through: through, Duration: time.Since(began)}
		if refused == nil {
			l.cfg.Observer.ObservePublish(seen)
			l.well()
			return nil
		}
		seen.Err = refused
		l.cfg.Observer.ObservePublish(seen)
		if err := l.tenure.Work().Err(); err != nil {
			return err
		}
		if err := l.refused(ctx, through); err != nil {
			return err
		}
	}
}

// commit moves the cursor, together with the last messages of chains and what is set aside, behind what is published.
func (l *publishing) commit() error {
	if l.broken || !l.tenure.Floor().Before(l.through) && l.changes == nil {
		return nil
	}
	t := l.chains.movedTails()
	err := l.tenure.CommitWith(l.through, l.changes, func(b *pgx.Batch) {
		if len(t.topics) > 0 {
			b.Queue(l.sql(moveTailsSQL), l.ref.Name, l.ref.Version, t.topics, t.partitions, t.positions)
		}
	})
	if err != nil {
		return err
	}
	l.chains.committed()
	l.changes = nil
	l.tellFailures()
	l.moved = time.Now()
	if l.unsaved {
		l.unsaved = false
		l.cfg.probe(probeCommitted)
	}
	return nil
}

// rest returns false when ctx ended first.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

const tailsSQL = `SELECT topic, partition, position FROM {schema}.outbox_tails WHERE consumer = $1 AND version = $2 AND partition BETWEEN $3 AND $4`

const lookSQL = `
SELECT s.epoch::text, ARRAY(SELECT DISTINCT u.topic FROM {schema}.subscribers u WHERE u.state = 'following' ORDER BY u.topic) FROM {schema}.store s`

const moveTailsSQL = `
INSERT INTO {schema}.outbox_tails (consumer, version, topic, partition, position)
SELECT $1::text, $2::int, u.topic, u.partition, u.position
  FROM unnest($3::text[], $4::int[], $5::bigint[]) AS u(topic, partition, position)
ON CONFLICT (consumer, version, topic, partition) DO UPDATE SET position = excluded.position`
