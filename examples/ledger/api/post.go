package api

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

const (
	maxBody = 1 << 20
	maxKey  = 200
)

// posting and posted are the JSON of an entry.
type posted struct {
	Date        string    `json:"date"`
	Description string    `json:"description"`
	Postings    []posting `json:"postings"`
	Key         string    `json:"key,omitempty"`
}

type posting struct {
	Account   string `json:"account"`
	Amount    string `json:"amount"`
	Commodity string `json:"commodity"`
}

// receipt is the answer to a post.
type receipt struct {
	Key string `json:"key"`
}

func (a *api) post(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	var in posted
	if err := decode(body, &in); err != nil {
		return err
	}
	key, err := keyOf(in.Key)
	if err != nil {
		return err
	}
	content, err := in.entry()
	if err != nil {
		return err
	}
	ctx, cancel := working(r)
	defer cancel()
	done, err := a.book.Post(ctx, key, content, book.OpeningAccounts())
	status, token := http.StatusCreated, done.Token
	if err == nil && done.Already {
		status = http.StatusOK
		var recorded entry.Entry
		if recorded, err = a.recorded(ctx, key); err == nil && !same(recorded, content) {
			return &problem{
				Type: typeOf("key-used"), Title: "The key was used for another entry", Status: http.StatusConflict,
				Field: "key", Value: short(in.Key), Key: key, Rule: "key-once",
				Remedy: "post this entry under a key of its own; the other one is at /entries/" + key,
			}
		}
		if err == nil { // that of the entry is not kept: this one stands for it too
			token, err = a.store.HeadToken(ctx)
		}
	}
	if err != nil {
		return refused(err, in, key)
	}
	w.Header().Set(TokenHeader, token.String())
	if status == http.StatusCreated {
		w.Header().Set("Location", "/entries/"+key)
	}
	return writeJSON(w, status, receipt{Key: key})
}

// same reports whether an entry that is there says what was posted. A reversal says more than its postings.
func same(recorded entry.Entry, content journal.Entry) bool {
	return recorded.Reverses == "" && bytes.Equal(journal.Canonical(recorded.Content()), journal.Canonical(content))
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") || r.Header.Get("Content-Encoding") != "" {
		return nil, &problem{
			Type: typeOf("media-type"), Title: "The body is not JSON", Status: http.StatusUnsupportedMediaType,
			Field: "Content-Type", Value: short(r.Header.Get("Content-Type")), Remedy: "send application/json, in UTF-8 and not compressed",
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &problem{
			Type: typeOf("too-large"), Title: "The body is too large", Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("it has more than %d bytes", maxBody), Remedy: "split the entry",
		}
	case err != nil:
		return nil, syntax("", "", "the body ended early", "send all of it")
	case !utf8.Valid(body):
		return nil, syntax("", "", "the body is not UTF-8", "encode it in UTF-8")
	}
	return body, nil
}

func syntax(field, value, detail, remedy string) *problem {
	return &problem{
		Type: typeOf("syntax"), Title: "The request cannot be read", Status: http.StatusBadRequest,
		Field: field, Value: value, Detail: detail, Remedy: remedy,
	}
}

// decode reads one JSON object and nothing behind it.
func decode(body []byte, in *posted) error {
	const example = `send {"date": "2025-01-31", "description": "Lunch", "postings": [{"account": "expenses:food", "amount": "4.00", "commodity": "EUR"}, …]}`
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(in)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		remedy := example
		if strings.HasSuffix(kind.Field, "amount") {
			remedy = `write amounts as texts, such as "-12.50"`
		}
		return syntax(kind.Field, "", "a "+kind.Value+" stands where none can", remedy)
	case errors.Is(err, io.EOF):
		return syntax("", "", "the body is empty", example)
	case err != nil:
		return syntax("", "", strings.TrimPrefix(err.Error(), "json: "), example)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return syntax("", "", "something follows behind the entry", "send one entry at a time")
	}
	return nil
}

var ledgerKey = regexp.MustCompile(`^[0-9a-f]{64}$`)

// keyOf is the entry's key for what the caller calls it.
func keyOf(text string) (string, error) {
	switch {
	case text == "":
		var random [32]byte
		_, _ = rand.Read(random[:]) // never fails
		return hex.EncodeToString(random[:]), nil
	case ledgerKey.MatchString(text):
		return text, nil
	case len(text) > maxKey || strings.ContainsFunc(text, unicode.IsControl):
		return "", broken("key", text, "plain-text", "the key has more than 200 bytes, or a control character", "use a UUID or a number")
	}
	sum := sha256.Sum256([]byte("daybook-ledger-posted-1:" + text))
	return hex.EncodeToString(sum[:]), nil
}

// entry reads the texts. Lines count the postings, so that a rule can say which one it means.
func (in posted) entry() (journal.Entry, error) {
	date, err := journal.ParseDate(in.Date)
	if err != nil {
		return journal.Entry{}, broken("date", in.Date, "calendar", "it is not a day of the calendar", "write it YYYY-MM-DD, such as 2012-02-29")
	}
	if len(in.Postings) > journal.MaxPostings {
		return journal.Entry{}, broken("postings", "", "few-postings",
			fmt.Sprintf("there are %d, more than %d", len(in.Postings), journal.MaxPostings), "split the entry")
	}
	if len(in.Description) > journal.MaxField {
		return journal.Entry{}, broken("description", in.Description, "field-size", fmt.Sprintf("it has more than %d bytes", journal.MaxField), "shorten it")
	}
	e := journal.Entry{Date: date, Description: in.Description}
	for i, p := range in.Postings {
		amount, err := journal.ParseAmount(p.Amount)
		if err != nil {
			return journal.Entry{}, broken(fieldOf(i, "amount"), p.Amount, "plain-number",
				"it is not a plain number of at most 19 digits", "write digits with at most one point, such as -1000.00")
		}
		if len(p.Commodity) > journal.MaxField {
			return journal.Entry{}, broken(fieldOf(i, "commodity"), p.Commodity, "field-size", fmt.Sprintf("it has more than %d bytes", journal.MaxField), "shorten it")
		}
		e.Postings = append(e.Postings, journal.Posting{Line: i + 1, Account: p.Account, Amount: amount, Commodity: p.Commodity})
	}
	return e, nil
}

func fieldOf(posting int, name string) string { return fmt.Sprintf("postings[%d].%s", posting, name) }

// refused says why an entry was not posted, or that it is not certain.
func refused(err error, in posted, key string) error {
	if p := ruled(err, in); p != nil {
		return p
	}
	p := fault(err)
	p.Key = key
	if errors.Is(err, eventstore.ErrUnconfirmed) {
		p.Type, p.Title = typeOf("unconfirmed"), "Whether the entry was stored is not certain"
	}
	if p.Status == http.StatusServiceUnavailable {
		p.Remedy, p.retryAfter = "send it again with this key: it is not posted twice", max(p.retryAfter, time.Second)
	}
	return p
}
