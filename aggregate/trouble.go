package aggregate

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// trouble is one way in which snapshots can fail a repository.
type trouble uint8

const (
	cannotRead   trouble = iota // the store: every stream is affected
	cannotSave                  // the store as well
	cannotEncode                // the state of one stream
	cannotUse                   // the snapshot of one stream
	troubles
)

var troubleText = [troubles]struct{ begins, ends string }{
	cannotRead:   {"snapshots cannot be read; whole streams are", "snapshots can be read again"},
	cannotSave:   {"no snapshot was taken", "snapshots are taken again"},
	cannotEncode: {"no snapshot was taken, the state cannot be encoded", "the state can be encoded again"},
	cannotUse:    {"a snapshot cannot be used; an older one or the events are", "the snapshot is no longer in the way"},
}

// forgetAfter bounds how long the trouble of one stream keeps that of others out of the log.
const forgetAfter = time.Hour

// troubleLog writes a line when a trouble begins and one when it ends, however many commands there are in between. It
// remembers one stream for each kind, never one per aggregate. It is safe for concurrent use.
type troubleLog struct {
	logger *slog.Logger
	clock  func() time.Time

	mu  sync.Mutex // held while a line is written, so that lines are in the order of the changes
	now [troubles]atomic.Pointer[troubled]
}

type troubled struct {
	stream eventstore.StreamID
	since  time.Time
	times  atomic.Int64
}

// ofStore: a trouble of the store ends with the first success, whatever the stream. One of a stream ends only there:
// else a stream that fails and one that works would take turns in the log.
func (k trouble) ofStore() bool { return k == cannotRead || k == cannotSave }

// failed notes a failure; only the one that begins a trouble is logged.
func (l *troubleLog) failed(ctx context.Context, k trouble, stream eventstore.StreamID, v eventstore.Version, err error) {
	if l.known(k, stream) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known(k, stream) {
		return
	}
	begun := &troubled{stream: stream, since: l.clock()}
	begun.times.Store(1)
	l.now[k].Store(begun)
	l.logger.WarnContext(ctx, "aggregate: "+troubleText[k].begins,
		"aggregate", stream.String(), "version", int64(v), "error", err.Error())
}

// known reports whether the failure belongs to a trouble that has been logged, and counts it.
func (l *troubleLog) known(k trouble, stream eventstore.StreamID) bool {
	t := l.now[k].Load()
	if t == nil || !k.ofStore() && t.stream != stream && l.clock().Sub(t.since) >= forgetAfter {
		return false
	}
	t.times.Add(1)
	return true
}

// worked notes a success.
func (l *troubleLog) worked(ctx context.Context, k trouble, stream eventstore.StreamID) {
	if !l.endedBy(k, stream) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.endedBy(k, stream) {
		return
	}
	t := l.now[k].Swap(nil)
	l.logger.InfoContext(ctx, "aggregate: "+troubleText[k].ends,
		"aggregate", stream.String(), "failures", t.times.Load(), "since", t.since)
}

func (l *troubleLog) endedBy(k trouble, stream eventstore.StreamID) bool {
	t := l.now[k].Load()
	return t != nil && (k.ofStore() || t.stream == stream)
}
