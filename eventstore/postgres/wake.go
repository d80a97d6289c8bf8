package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// notifyEvery is the shortest time between two notifications of one process. A notification takes a lock over the whole
// database at commit, so it is never part of an append: at once when idle, then at most this often.
const notifyEvery = 5 * time.Millisecond

// signal wakes everybody who waits, once for each broadcast. The zero value is ready.
type signal struct {
	mu    sync.Mutex
	count uint64 // of broadcasts
	ch    chan struct{}
}

// now returns the number of broadcasts so far: what a reader notes before it reads, so that none can fall between its
// reading and its waiting.
func (s *signal) now() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// after returns a channel that is closed by the next broadcast beyond count: at once if there was one already.
func (s *signal) after(count uint64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count > count {
		return closed
	}
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// maxNoted bounds what a reader remembers: far more than consumers share one.
const maxNoted = 128

// noted are the ends that reads have come to, with the broadcasts that there had been when each began. The zero value is
// ready.
type noted struct {
	mu   sync.Mutex
	ends map[int64]uint64
}

func (n *noted) note(through int64, count uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ends == nil || len(n.ends) >= maxNoted {
		n.ends = make(map[int64]uint64, maxNoted)
	}
	n.ends[through] = count
}

// count is what was noted for an end; what is not known counts as seen.
func (n *noted) count(through int64, now uint64) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if count, ok := n.ends[through]; ok {
		return count
	}
	return now
}

// Wake tells readers, in this process at once and in others by a notification, that something was committed. Append
// does so by itself; after an append with [Store.WithTx], or a message of outbox.Enqueue, the caller does, once he has
// committed.
func (s *Store) Wake() {
	s.wake.broadcast()
	select {
	case s.notify <- struct{}{}:
	default: // one is pending already
	}
}

// appended is called after each commit with the last position written.
func (s *Store) appended(last int64) {
	s.Wake()
	if s.ranges.low(last) {
		s.ensureRangesSoon()
	}
}

// notifyOthers sends pending notifications until ctx ends.
func (s *Store) notifyOthers(ctx context.Context) error {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.notify:
		}
		_, err := s.pool.Exec(ctx, s.sql.notify, s.id)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			failing = true
			s.cfg.Logger.Warn("daybook: notifications cannot be sent; readers in other processes see events by polling", "error", err)
		case err == nil && failing:
			failing = false
			s.cfg.Logger.Info("daybook: notifications are sent again")
		}
		if !sleep(ctx, notifyEvery) {
			return nil
		}
	}
}

// listen wakes readers of this process for what others append. After every (re)connection readers look once, since
// notifications in between are lost; while there is no connection they poll.
func (s *Store) listen(ctx context.Context) error {
	backoff := pollMin
	interrupted := false
	for ctx.Err() == nil {
		start := time.Now()
		err := s.listenOnce(ctx, func() {
			if interrupted {
				s.cfg.Logger.Info("daybook: listening for notifications again")
			}
			interrupted = false
		})
		s.listening.Store(false)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(start) > time.Minute {
			backoff = pollMin
		}
		if !interrupted {
			interrupted = true
			s.cfg.Logger.Warn("daybook: listening for notifications interrupted; polling until it is back", "error", err)
		}
		if !sleep(ctx, backoff) {
			return nil
		}
		backoff = min(2*backoff, 30*time.Second)
	}
	return nil
}

func (s *Store) listenOnce(ctx context.Context, begun func()) (err error) {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = errors.Join(err, conn.Close(closing))
	}()
	if _, err := conn.Exec(ctx, expand(listenSQL, s.cfg.Schema)); err != nil {
		return err
	}
	begun()
	s.listening.Store(true)
	s.wake.broadcast()
	for {
		// A connection that died silently gives no error; asking it now and then does.
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		note, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			if note.Payload != s.id { // readers here were woken by the append itself
				s.wake.broadcast()
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return err
		case conn.IsClosed():
			return fmt.Errorf("postgres: connection closed while waiting: %w", err)
		default:
			if err := conn.Ping(ctx); err != nil {
				return err
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

const (
	listenSQL = `LISTEN "daybook_{tag}"`
	// A notification is a hint: its commit need not wait for the disk, which the next append is waiting for.
	notifySQL = `SELECT set_config('synchronous_commit', 'off', true), pg_notify('daybook_{tag}', $1)`
)
