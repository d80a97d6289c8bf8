package deadletter

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// Filter selects letters. The zero value selects all that are open.
type Filter struct {
	Consumer string
	// Version of the consumer; 0 for every version.
	Version int
	Topic   string
	// Sequence is the partition key. With it name the consumer, and of a relay the topic.
	Sequence string
	// Fingerprint is that of a group; see [Letters.Groups].
	Fingerprint string
	// Type is the wire name of the message.
	Type string
	// State is one of the states, or [Open] or [Closed]. Default Open.
	State State
	// Kind is "transient" or "permanent", of the last failure.
	Kind string
	// Since and Until bound when it failed last: not before Since, and before Until.
	Since, Until time.Time
	// After is the Next of the page before; empty for the first page. Only [Letters.List] reads it and Limit.
	After string
	// Limit is how many letters a page has at most. Default 100, at most 1,000.
	Limit int
}

func (f Filter) validate() error {
	switch {
	case f.Version < 0 || f.Version > math.MaxInt32:
		return invalid("Filter.Version", fmt.Sprint(f.Version), "is no version", "name a version, or 0 for all")
	case f.Version != 0 && f.Consumer == "":
		return invalid("Filter.Version", fmt.Sprint(f.Version), "stands alone", "name the consumer too")
	case f.Sequence != "" && f.Consumer == "":
		return invalid("Filter.Sequence", f.Sequence, "stands alone", "name the consumer too: each has its own sequences")
	case f.Limit < 0 || f.Limit > maxLimit:
		return invalid("Filter.Limit", fmt.Sprint(f.Limit), fmt.Sprintf("is not between 1 and %d", maxLimit), "ask for less, and go on with After")
	case f.Kind != "" && f.Kind != "transient" && f.Kind != "permanent":
		return invalid("Filter.Kind", f.Kind, "is no kind", `use "transient" or "permanent"`)
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return invalid("Filter.Until", f.Until.Format(time.RFC3339), "is not after Since", "exchange them")
	case !slices.Contains([]State{"", Open, Closed, Retrying, Parked, Behind, Applied, Discarded, TakenOver}, f.State):
		return invalid("Filter.State", string(f.State), "is no state", `use "open", "closed", or a state as Letter.State has it`)
	}
	for _, text := range []struct{ name, value string }{
		{"Consumer", f.Consumer}, {"Topic", f.Topic}, {"Sequence", f.Sequence}, {"Fingerprint", f.Fingerprint}, {"Type", f.Type},
	} {
		if !storable(text.value) {
			return invalid("Filter."+text.name, fmt.Sprintf("%.200q", text.value), "has a zero byte, or is not UTF-8", "name what is stored")
		}
	}
	return nil
}

// storable: PostgreSQL has it as a text.
func storable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// open: only open letters are asked for. Those have the better indexes.
func (f Filter) open() bool { return f.State == "" || f.State == Open || f.State.Open() }

// String is the filter as people read it.
func (f Filter) String() string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf("%s %q", name, value))
		}
	}
	add("consumer", f.Consumer)
	if f.Version != 0 {
		parts = append(parts, fmt.Sprintf("version %d", f.Version))
	}
	add("topic", f.Topic)
	add("sequence", f.Sequence)
	add("group", f.Fingerprint)
	add("type", f.Type)
	add("state", string(f.State))
	add("kind", f.Kind)
	if !f.Since.IsZero() {
		parts = append(parts, "since "+f.Since.UTC().Format(time.RFC3339))
	}
	if !f.Until.IsZero() {
		parts = append(parts, "until "+f.Until.UTC().Format(time.RFC3339))
	}
	if parts == nil {
		return "all"
	}
	return strings.Join(parts, ", ")
}

// where collects conditions and their arguments.
type where struct {
	conditions []string
	args       []any
}

// arg adds an argument and returns how the statement names it.
func (w *where) arg(value any) string {
	w.args = append(w.args, value)
	return fmt.Sprintf("$%d", len(w.args))
}

func (w *where) add(format string, values ...any) {
	names := make([]any, len(values))
	for i, v := range values {
		names[i] = w.arg(v)
	}
	w.conditions = append(w.conditions, fmt.Sprintf(format, names...))
}

func (w *where) String() string {
	if len(w.conditions) == 0 {
		return "true"
	}
	return strings.Join(w.conditions, " AND ")
}

// isOpen is what the indexes of open letters know.
const isOpen = `l.state IN ('retrying', 'parked')`

// key adds what an index finds, and returns what is left to look at row by row.
func (f Filter) key(w *where) (rest where) {
	rest.args = w.args
	on := func(w *where, used bool, condition string, values ...any) {
		if used {
			w.add(condition, values...)
		}
	}
	on(w, f.Consumer != "", "l.consumer = %s", f.Consumer)
	on(w, f.Version != 0, "l.version = %s::int", f.Version)
	if f.open() {
		w.conditions = append(w.conditions, isOpen)
	} else {
		w.conditions = append(w.conditions, "l.closed_at IS NOT NULL")
	}
	on(w, f.Sequence != "", "l.topic = %s", f.Topic)
	on(w, f.Sequence != "", "l.sequence = %s", f.Sequence)
	on(w, f.byGroup(), "l.fingerprint = %s", f.Fingerprint)
	rest.args = w.args
	on(&rest, f.Topic != "" && f.Sequence == "", "l.topic = %s", f.Topic)
	on(&rest, f.Fingerprint != "" && !f.byGroup(), "l.fingerprint = %s", f.Fingerprint)
	on(&rest, f.Type != "", "l.type = %s", f.Type)
	on(&rest, f.Kind != "", "l.kind = %s", f.Kind)
	on(&rest, f.State != "" && f.State != Open && f.State != Closed, "l.state = %s", string(f.State))
	on(&rest, !f.Since.IsZero(), "l.last_failed_at >= %s::timestamptz", f.Since)
	on(&rest, !f.Until.IsZero(), "l.last_failed_at < %s::timestamptz", f.Until)
	w.args = rest.args
	return rest
}

// byGroup: the index of groups finds them, in the order of their last failure.
func (f Filter) byGroup() bool {
	return f.open() && f.Fingerprint != "" && f.Consumer != "" && f.Version != 0 && f.Sequence == ""
}

// cursor is where a page ended, in one of three orders.
type cursor struct {
	Order    string    `json:"o"`
	Consumer string    `json:"c,omitempty"`
	Version  int       `json:"v,omitempty"`
	Topic    string    `json:"t,omitempty"`
	Sequence string    `json:"s,omitempty"`
	Position int64     `json:"p,omitempty"`
	At       time.Time `json:"a,omitzero"`
	Letter   uuid.UUID `json:"l,omitzero"`
}

const (
	bySequence = "sequence" // open letters: by consumer, version, topic, sequence and position
	byFailure  = "failure"  // of one group: by the time of the last failure
	byClosing  = "closing"  // closed letters: by the time when they were closed
)

func (f Filter) order() string {
	switch {
	case f.byGroup():
		return byFailure
	case f.open():
		return bySequence
	}
	return byClosing
}

func (c cursor) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		return "" // texts, numbers and times of the database: there is none
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// after is the end of the page before. What that has found out of the consumer stays so.
func (f *Filter) after() (*cursor, error) {
	if f.After == "" {
		return nil, nil
	}
	var c cursor
	text, err := base64.RawURLEncoding.DecodeString(f.After)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil && c.Order == byFailure && f.Fingerprint != "" && (f.Consumer == "" || f.Consumer == c.Consumer) {
		f.Consumer, f.Version = c.Consumer, c.Version
	}
	if err != nil || c.Order != f.order() {
		return nil, invalid("Filter.After", f.After, "is not the Next of a page of this filter", "pass it on unchanged, with the same filter")
	}
	return &c, nil
}
