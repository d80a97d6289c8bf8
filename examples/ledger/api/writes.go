package api

import (
	"net/http"
	"net/url"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/examples/ledger/commands"
	"github.com/daybook-go/daybook/examples/ledger/entry"
)

// writes are the commands. An entry and its accounts are several streams, so that posting has no precondition; what one
// account decides by itself needs one.
func (a *API) writes() {
	commandhttp.Command(a.API, "POST /entries", commandhttp.Endpoint[commands.PostEntry]{
		Status: http.StatusCreated, Fill: func(_ *http.Request, c *commands.PostEntry) error { return valid(c) },
		Location: entryOf[commands.PostEntry],
	})
	commandhttp.Command(a.API, "POST /entries/{key}/reversal", commandhttp.Endpoint[commands.ReverseEntry]{
		Status: http.StatusCreated, Fill: reversal, Location: entryOf[commands.ReverseEntry],
	})
	commandhttp.Command(a.API, "POST /accounts", commandhttp.Endpoint[commands.OpenAccount]{
		Status: http.StatusCreated, IfMatch: commandhttp.Required,
		Fill: func(_ *http.Request, c *commands.OpenAccount) error { return valid(c) },
		Location: func(_ *http.Request, c commands.OpenAccount, _ bus.Reply) string {
			return "/accounts/" + url.PathEscape(c.Name)
		},
	})
	commandhttp.Command(a.API, "PUT /accounts/{name}", commandhttp.Endpoint[commands.ChangeTerms]{
		IfMatch: commandhttp.Required,
		Fill: func(r *http.Request, c *commands.ChangeTerms) error {
			if err := fromPath("name", r.PathValue("name"), &c.Name); err != nil {
				return err
			}
			return valid(c)
		},
	})
}

// valid refuses what no state of the ledger could make right, before anything is stored for it.
func valid(c interface{ Validate() error }) error {
	err := c.Validate()
	if p := broken(err); p != nil {
		return p
	}
	return err
}

func reversal(r *http.Request, c *commands.ReverseEntry) error {
	if err := fromPath("key", r.PathValue("key"), &c.Key); err != nil {
		return err
	}
	if !commands.IsEntryKey(c.Key) {
		return noEntry(c.Key)
	}
	return valid(c)
}

// fromPath takes a member from the path, where alone it belongs.
func fromPath(name, value string, member *string) error {
	if *member != "" && *member != value {
		return &commandhttp.Problem{
			Kind: "syntax", Field: name, Value: commandhttp.Shorten(*member), Detail: "the path has another one", Remedy: "leave it out",
		}
	}
	*member = value
	return nil
}

func noEntry(key string) error {
	return &commandhttp.Problem{Kind: "no-entry", Field: "key", Value: commandhttp.Shorten(key), Rule: "entry-exists"}
}

// entryOf is where the entry is that was made. It is named after its stream, which is there also when the result came
// through an operation.
func entryOf[C any](_ *http.Request, _ C, reply bus.Reply) string {
	if reply.Stream.Category != entry.Type.Category() {
		return ""
	}
	return "/entries/" + reply.Stream.ID
}
