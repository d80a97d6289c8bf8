package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/reports"
	"github.com/daybook-go/daybook/projection"
)

const (
	defaultWait = 2 * time.Second
	maxWait     = 30 * time.Second
	// onceOver is how long to look when nobody wants to wait.
	onceOver = 50 * time.Millisecond
)

// ask is how fresh an answer a reader wants, and what the reader does otherwise.
type ask struct {
	token   eventstore.Token
	wait    time.Duration
	prefers bool // the wait is a preference of the reader
	lenient bool
}

func (a *api) askOf(r *http.Request) (ask, error) {
	q := ask{wait: defaultWait}
	for _, text := range r.Header.Values(TokenHeader) {
		token, err := eventstore.ParseToken(strings.TrimSpace(text))
		if err != nil || !a.ours(token) {
			return q, syntax(TokenHeader, short(text), "it is not a token", "pass on the header of the answer to a post unchanged")
		}
		if token.Epoch() != a.store.Epoch() && !token.IsZero() {
			return q, otherEpoch()
		}
		if q.token, err = q.token.Merge(token); err != nil {
			return q, err
		}
	}
	for name, value := range preferences(r.Header.Values("Prefer")) {
		switch name {
		case "wait": // a preference that cannot be read is ignored
			if n, err := strconv.ParseUint(value, 10, 31); err == nil {
				q.wait, q.prefers = min(time.Duration(n)*time.Second, maxWait), true
			}
		case "handling":
			q.lenient = strings.EqualFold(value, "lenient")
		}
	}
	query := r.URL.Query()
	if !query.Has("wait") {
		return q, nil
	}
	wait, ok := seconds(query.Get("wait"))
	if !ok || wait < 0 || wait > maxWait {
		return q, syntax("wait", short(query.Get("wait")), "it is no time from 0 to 30 seconds", "write seconds, such as wait=2, or wait=500ms")
	}
	q.wait, q.prefers = wait, false
	return q, nil
}

// ours reports whether a token can be of a store with so many partitions.
func (a *api) ours(token eventstore.Token) bool {
	for _, mark := range token.Marks() {
		if mark.Partition >= a.store.Partitions() {
			return false
		}
	}
	return true
}

// seconds reads a number of seconds, or a duration with a unit.
func seconds(text string) (time.Duration, bool) {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

// preferences reads the header Prefer (RFC 7240). The first of a name counts; parameters are not used.
func preferences(headers []string) map[string]string {
	found := map[string]string{}
	for _, part := range strings.Split(strings.Join(headers, ","), ",") {
		part, _, _ = strings.Cut(part, ";")
		name, value, _ := strings.Cut(part, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		if _, known := found[name]; !known {
			found[name] = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return found
}

// applied says which preferences were followed.
func (q ask) applied(w http.ResponseWriter, stale bool) {
	var done []string
	if q.prefers && !q.token.IsZero() {
		done = append(done, "wait="+strconv.Itoa(int(q.wait/time.Second)))
	}
	if stale {
		done = append(done, "handling=lenient")
	}
	if len(done) > 0 {
		w.Header().Set("Preference-Applied", strings.Join(done, ", "))
	}
}

// wait returns when the balances show the token; with how much they lack when that is too long for a lenient reader, and
// with a problem for any other.
func (a *api) wait(ctx context.Context, q ask) (*lag, error) {
	patient, cancel := context.WithTimeout(ctx, max(q.wait, onceOver))
	defer cancel()
	err := a.waiter.WaitFor(patient, q.token, reports.Balances)
	var (
		stale     *projection.StaleError
		stopped   *projection.StoppedError
		history   *eventstore.HistoryError
		isHistory = errors.As(err, &history)
	)
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &stale):
		behind := &lag{Want: stale.Want, Have: stale.Have, Behind: stale.Behind, Working: !stale.Idle}
		if q.lenient {
			return behind, nil
		}
		return nil, tooLong(behind, ctx.Err() != nil)
	case errors.As(err, &stopped):
		since := stopped.Since.UTC()
		return nil, &problem{
			Type: typeOf("stopped"), Title: "The read model stands still", Status: http.StatusServiceUnavailable,
			Detail: "the projection " + stopped.Projection + " is " + stopped.State, State: stopped.State, Since: &since,
			Remedy: "what was posted is stored: read without " + TokenHeader + " to see what was shown before, and tell the operator",
			// The reason may quote an event: it is for the log of the process that stopped.
			retryAfter: 10 * time.Second,
		}
	case isHistory && q.token.Epoch() == a.store.Epoch():
		return nil, &problem{
			Type: typeOf("beyond-log"), Title: "The token is not of this log", Status: http.StatusConflict,
			Field: TokenHeader, Detail: history.Reason, Remedy: history.Remedy,
		}
	case isHistory:
		return nil, otherEpoch()
	}
	return nil, err
}

func tooLong(behind *lag, interrupted bool) *problem {
	p := &problem{
		Type: typeOf("stale"), Title: "The read model does not show the entry yet", Status: http.StatusServiceUnavailable,
		Detail: "it is at most " + behind.text() + " events behind; what was posted is stored",
		Remedy: "ask again with the same token, or with Prefer: handling=lenient for the balances as they are; do not post again",
		lag:    behind, retryAfter: time.Second,
	}
	switch {
	case interrupted:
		p.Detail += "; the server is ending"
	case !behind.Working:
		p.Detail += "; no process works on it (is \"ledger work\" running?)"
		p.retryAfter = 5 * time.Second
	}
	return p
}

func (l *lag) text() string { return strconv.FormatInt(l.Behind, 10) }

func otherEpoch() *problem {
	return &problem{
		Type: typeOf("other-history"), Title: "The token is of another history", Status: http.StatusGone,
		Field:  TokenHeader,
		Detail: "the token is of another epoch of the store than the present one: the store was restored or replaced since",
		Remedy: "drop the token, and read again what it stood for",
	}
}
