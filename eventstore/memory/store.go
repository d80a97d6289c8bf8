package memory

import (
	"bytes"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/snapshot"
)

var _ eventstore.Store = (*Store)(nil)

// Config says how a [Store] behaves. The zero value works.
type Config struct {
	// Clock gives the time of each append. Default: time.Now.
	Clock func() time.Time
	// Partitions is the number of partitions, which never changes. Default: [eventstore.DefaultPartitions].
	Partitions int
	// KeepKeys is how long the outcome of a command with a key is kept; see [Store.AppendOnce]. Default: 24 hours.
	KeepKeys time.Duration
}

// Store is a log in memory. It is safe for concurrent use.
type Store struct {
	clock      func() time.Time
	partitions int
	epoch      uuid.UUID

	mu sync.Mutex
	// log holds all events by position. It only grows and its elements never change, so a slice of it taken under
	// the mutex may be read without it.
	log     []eventstore.RecordedEvent
	streams map[eventstore.StreamID]*stream
	// grown is closed, and replaced, by each append that stores events.
	grown     chan struct{}
	locks     locks
	outcomes  outcomes
	running   map[string]bool // the keys that are held
	snapshots map[snapshotKey][]snapshot.Snapshot
}

type stream struct {
	partitionKey string
	partition    int
	// at holds the index in the log of each version: version 1 is at[0]. Like the log it only grows.
	at []int
}

// New returns an empty store with an epoch of its own. It panics when Partitions or KeepKeys is negative, which no program
// can mean.
func New(config Config) *Store {
	if config.Partitions < 0 {
		panic(fmt.Sprintf("memory: Config.Partitions %d is negative: use 0 for the default", config.Partitions))
	}
	if config.KeepKeys < 0 {
		panic(fmt.Sprintf("memory: Config.KeepKeys %s is negative: use 0 for the default", config.KeepKeys))
	}
	secret := uuid.New()
	s := &Store{
		clock:      config.Clock,
		partitions: config.Partitions,
		epoch:      uuid.New(),
		streams:    make(map[eventstore.StreamID]*stream),
		grown:      make(chan struct{}),
		locks:      make(locks),
		outcomes:   outcomes{keep: config.KeepKeys, secret: secret[:], byKey: make(map[string]*kept)},
		running:    make(map[string]bool),
	}
	if s.outcomes.keep == 0 {
		s.outcomes.keep = 24 * time.Hour
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	if s.partitions == 0 {
		s.partitions = eventstore.DefaultPartitions
	}
	return s
}

// Epoch identifies the history of this store; tokens carry it.
func (s *Store) Epoch() uuid.UUID { return s.epoch }

// Partitions returns the number of partitions that events are spread over.
func (s *Store) Partitions() int { return s.partitions }

// Log returns the store's log as consumers read it. It is safe for concurrent use.
func (s *Store) Log() *Log { return &Log{store: s} }

// clone copies what a caller could change through e.
func clone(e eventstore.RecordedEvent) eventstore.RecordedEvent {
	e.Data = bytes.Clone(e.Data)
	e.Metadata.Headers = maps.Clone(e.Metadata.Headers)
	return e
}
