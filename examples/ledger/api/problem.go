package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
)

// problem is an answer as RFC 9457 has it. It is an error, so that handlers return it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Field and Value say what was wrong, Rule which rule it broke, Remedy what to do.
	Field  string `json:"field,omitempty"`
	Value  string `json:"value,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Key is that of the entry, so that a post without one can be repeated under it.
	Key string `json:"key,omitempty"`
	*lag
	// State of a projection that does not move, and since when.
	State string     `json:"state,omitempty"`
	Since *time.Time `json:"since,omitempty"`

	retryAfter time.Duration
	cause      error // for the log
}

// lag says how far a read model is behind a token.
type lag struct {
	// Want is the position waited for, Have the one reached.
	Want eventstore.Position `json:"want"`
	Have eventstore.Position `json:"have"`
	// Behind is how many events are missing at most.
	Behind int64 `json:"behind"`
	// Working is false when no process keeps the read model.
	Working bool `json:"working"`
}

// typeOf names a kind of problem. Programs may compare the names.
func typeOf(name string) string { return "urn:daybook:ledger:" + name }

func (p *problem) Error() string { return "api: " + p.Title + ": " + p.Detail }

func (p *problem) write(w http.ResponseWriter) {
	text, err := json.Marshal(p)
	if err != nil { // texts and numbers only
		panic(err)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((p.retryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(text, '\n')) // whoever asked has gone
}

// fault is an error that the caller cannot help: the database's, or a mistake of ours. Its text stays in the log.
func fault(err error) *problem {
	switch {
	case err == nil, isOurs(err):
		return &problem{
			Type: typeOf("fault"), Title: "The ledger has made a mistake", Status: http.StatusInternalServerError,
			Remedy: "look into its log", cause: err,
		}
	case eventstore.IsRetryable(err):
		return &problem{
			Type: typeOf("busy"), Title: "The ledger is busy", Status: http.StatusServiceUnavailable,
			Remedy: "send the same request again", retryAfter: time.Second, cause: err,
		}
	}
	return &problem{
		Type: typeOf("unavailable"), Title: "The database does not answer", Status: http.StatusServiceUnavailable,
		Remedy: "send the same request again", retryAfter: 2 * time.Second, cause: err,
	}
}

// isOurs reports whether waiting will not help.
func isOurs(err error) bool {
	var decode *eventstore.DecodeError
	if errors.As(err, &decode) || errors.Is(err, eventstore.ErrUnknownType) || errors.Is(err, eventstore.ErrInvalid) || errors.Is(err, eventstore.ErrHistory) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false // the connection's
	}
	for _, class := range []string{"08", "25006", "40", "53", "55P03", "57", "58"} {
		if strings.HasPrefix(pg.Code, class) {
			return false
		}
	}
	return true
}

// short makes a text from outside safe to show.
func short(text string) string {
	const limit = 60
	more := ""
	if len(text) > limit {
		text, more = strings.ToValidUTF8(text[:limit], ""), "…"
	}
	quoted := strconv.Quote(text)
	return quoted[1:len(quoted)-1] + more
}
