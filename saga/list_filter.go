package saga

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
)

// Filter selects instances of one saga.
type Filter struct {
	// Saga is needed.
	Saga string
	// Stuck selects those that do not go on by themselves. [List] finds them by the rule of [Explain]: also those whose timers
	// are overdue, whose answer does not come, whose commands do not move or are dead letters, and those that are paused. To an
	// [Operator], see [Matching], it selects what managers have stored as stuck.
	Stuck bool
	// Reason selects those that have a problem with it, one of the Reason… constants; with retrying also those that go on by
	// themselves. To an [Operator] it is one of those that managers store: dead_letter, reply_overdue, compensation_failed,
	// handler_missing, paused.
	Reason string
	// State is "running", "compensating", "completed" or "compensated".
	State string
	// Older selects those that have not changed for so long; with Stuck or Reason, that have had such a problem for so long.
	Older time.Duration
	// After is the Next of the page before; empty for the first page. Only [List] reads it and Limit.
	After string
	// Limit is how many a page has at most. Default 100, at most 1,000.
	Limit int
}

func (f Filter) validate() error {
	if err := explainNames(f.Saga); err != nil {
		return opInvalid("Filter.Saga", fmt.Sprintf("%.200q", f.Saga), "is empty, has a zero byte, or is not UTF-8", "name the saga")
	}
	all := append(slices.Clone(storedReasons), ReasonTimerOverdue, ReasonOutboxBlocked, ReasonRetrying)
	switch {
	case f.Reason != "" && !slices.Contains(all, f.Reason):
		return opInvalid("Filter.Reason", clipped(f.Reason), "is no reason", "use one of "+strings.Join(all, ", "))
	case !slices.Contains([]string{"", string(flow.Running), string(flow.Compensating), string(flow.Completed), string(flow.Compensated)}, f.State):
		return opInvalid("Filter.State", clipped(f.State), "is no state", `use "running", "compensating", "completed" or "compensated"`)
	case f.Older < 0:
		return opInvalid("Filter.Older", f.Older.String(), "is below 0", "name a time like 1h")
	case f.Limit < 0 || f.Limit > listMost:
		return opInvalid("Filter.Limit", fmt.Sprint(f.Limit), fmt.Sprintf("is not between 1 and %d", listMost), "ask for less, and go on with After")
	}
	return nil
}

// storedReasons are what managers keep in the rows of instances.
var storedReasons = []string{ReasonDeadLetter, ReasonReplyOverdue, ReasonCompensationFailed, ReasonHandlerMissing, ReasonPaused}

// judged reports whether what f asks for is found by the rule of Explain.
func (f Filter) judged() bool { return f.Stuck || f.Reason != "" }

// clipped is what somebody has typed, for an error.
func clipped(text string) string { return fmt.Sprintf("%.100q", text) }

// String is the filter as people read it.
func (f Filter) String() string {
	parts := []string{fmt.Sprintf("saga %q", f.Saga)}
	if f.Stuck || f.Reason != "" && f.Reason != flow.Paused {
		parts = append(parts, "stuck")
	}
	if f.Reason != "" {
		parts = append(parts, f.Reason)
	}
	if f.State != "" {
		parts = append(parts, "state "+f.State)
	}
	if f.Older > 0 {
		parts = append(parts, "for longer than "+f.Older.String())
	}
	return strings.Join(parts, ", ")
}

// The orders of lists, each that of an index.
const (
	byStuck   = "stuck"   // since when they are stuck
	byPause   = "paused"  // since when they are paused
	byChange  = "changed" // of one open state: since when they have not changed
	byEnding  = "ended"   // of one state that is an end: when they ended
	byListKey = "key"
)

func (f Filter) order() string {
	switch {
	case f.Reason == flow.Paused:
		return byPause
	case f.Stuck || f.Reason != "":
		return byStuck
	case f.State == "":
		return byListKey
	case flow.State(f.State).Over():
		return byEnding
	}
	return byChange
}

// listCursor is where a page ended: in an order, or in a stage of those that do not go on.
type listCursor struct {
	Order     string    `json:"o"`
	At        time.Time `json:"a,omitzero"`
	Key       string    `json:"k,omitempty"`
	Run       int       `json:"r,omitempty"`
	Name      string    `json:"n,omitempty"` // of a timer, or a sequence
	Number    int64     `json:"i,omitempty"` // of a timer, or a position
	Partition int       `json:"p,omitempty"`
	Over      bool      `json:"e,omitempty"` // at the end of the stage
}

func (f Filter) after() (*listCursor, error) {
	if f.After == "" {
		return nil, nil
	}
	var c listCursor
	text, err := base64.RawURLEncoding.DecodeString(f.After)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	fits := c.Order == f.order()
	if f.judged() {
		n := stageNumber(c.Order)
		fits = n >= 0 && listStages[n].serves(f)
	}
	if err != nil || !fits || !opStorable(c.Key) || !opStorable(c.Name) {
		return nil, opInvalid("Filter.After", fmt.Sprintf("%.100q", f.After), "is not the Next of a page of this filter", "pass it on unchanged, with the same filter")
	}
	return &c, nil
}

func (c listCursor) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		return "" // texts, numbers and times of the database: there is none
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// sifts reports whether more is asked for than the order's index knows.
func (f Filter) sifts() bool {
	switch f.order() {
	case byEnding:
		return true
	case byListKey:
		return f.Older > 0
	}
	return false
}

// wheres collects conditions and their arguments.
type wheres struct {
	conditions []string
	args       []any
}

// arg adds an argument and returns how the statement names it.
func (w *wheres) arg(value any) string {
	w.args = append(w.args, value)
	return fmt.Sprintf("$%d", len(w.args))
}

func (w *wheres) String() string {
	if len(w.conditions) == 0 {
		return "true"
	}
	return strings.Join(w.conditions, " AND ")
}

// selection splits what f asks for into what the index of its order finds and what is looked at row by row.
func (f Filter) selection(w *wheres, now time.Time) (fits, order string) {
	rest := &wheres{}
	find := func(format string, names ...any) { w.conditions = append(w.conditions, fmt.Sprintf(format, names...)) }
	sift := func(format string, names ...any) {
		rest.conditions = append(rest.conditions, fmt.Sprintf(format, names...))
	}
	before := func(column string) string {
		var at any
		if !now.IsZero() {
			at = now
		}
		return fmt.Sprintf("%s < coalesce(%s::timestamptz, clock_timestamp()) - %s::interval", column, w.arg(at), w.arg(f.Older))
	}
	find("s.saga = %s", w.arg(f.Saga))
	column := ""
	switch f.order() {
	case byStuck:
		column = "s.stuck_since"
		find("s.stuck <> ''")
		if f.Reason != "" {
			sift("s.stuck = %s", w.arg(f.Reason))
		}
		if f.State != "" {
			sift("s.state = %s", w.arg(f.State))
		}
	case byPause:
		column = "s.paused_at"
		find("s.paused_at IS NOT NULL")
		if f.Stuck {
			sift("s.stuck <> ''")
		}
		if f.State != "" {
			sift("s.state = %s", w.arg(f.State))
		}
	case byChange:
		column = "s.changed_at"
		find("s.ended_at IS NULL")
		find("s.state = %s", w.arg(f.State))
	case byEnding:
		column = "s.ended_at"
		find("s.ended_at IS NOT NULL")
		sift("s.state = %s", w.arg(f.State))
	}
	switch {
	case f.Older == 0:
	case column == "":
		sift("%s", before("s.changed_at"))
	default:
		find("%s", before(column))
	}
	if column != "" {
		return rest.String(), column + ", s.key, s.run"
	}
	return rest.String(), "s.key, s.run"
}
