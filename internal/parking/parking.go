package parking

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// ErrNotOpen: a sequence has no open letter.
var ErrNotOpen = errors.New("parking: the sequence has no open letter")

// Owner names the consumer that has set something aside, and the schema of its store.
type Owner struct {
	Schema, Consumer string
	Version          int
}

// Key names a sequence: what is kept in order. Topic is empty for all but relays; Sequence is the partition key.
type Key struct{ Topic, Sequence string }

// State is what a sequence waits for.
type State string

// The states of a sequence.
const (
	// Retrying: its letter is tried again when it is due.
	Retrying State = "retrying"
	// Parked: its letter waits for people.
	Parked State = "parked"
	// Draining: it has no open letter. What is queued behind goes on step by step; then the sequence is released.
	Draining State = "draining"
)

// The states of letters that are closed. Open ones are [Retrying] or [Parked].
const (
	LetterApplied   = "applied"
	LetterDiscarded = "discarded"
	LetterTakenOver = "taken over"
)

// Sequence is what is known of one that is set aside.
type Sequence struct {
	Key
	Partition int
	State     State
	// DueAt is when its letter is tried again; of Retrying only.
	DueAt time.Time
	// First is where it stands: everything of the sequence below has taken effect. Last is the last message that is known.
	First, Last eventstore.Position
	// Previous is the position of a message of its topic and partition before First; of relays only.
	Previous eventstore.Position
	// Queued is how many messages are known behind the one that failed.
	Queued int64
	Since  time.Time
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// letterSpace is the namespace of the identifiers of letters.
var letterSpace = uuid.MustParse("5a0c1a3e-6a52-5f0e-9d0c-0d7b3c0f6b11")

// LetterID is the identifier of the letter of a message: the same however often it fails.
func LetterID(o Owner, topic string, at eventstore.Position) uuid.UUID {
	var b []byte
	for _, s := range [...]string{o.Consumer, topic} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendVarint(b, int64(o.Version))
	b = binary.AppendVarint(b, at.Ordinal())
	return uuid.NewSHA1(letterSpace, b)
}

// hash is that by which a token names a stream; see [eventstore.StreamHash].
func hash(sequence string) int64 {
	h := fnv.New32a()
	h.Write([]byte(sequence))
	return int64(h.Sum32())
}

// Program names the running binary: its main module, version, and revision where they are known.
func Program() string { return program() }

var program = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	name := info.Main.Path
	if name == "" {
		name = info.Path
	}
	if v := info.Main.Version; v != "" {
		name += "@" + v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && !strings.Contains(name, s.Value[:min(12, len(s.Value))]) {
			name += " " + s.Value[:min(12, len(s.Value))]
		}
	}
	return name
})

func (o Owner) sql(text string) string {
	return strings.ReplaceAll(text, "{schema}", pgx.Identifier{o.Schema}.Sanitize())
}
