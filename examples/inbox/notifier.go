package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/govalues/decimal"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/outbox/inbox"
)

// schema is where the notifier keeps what Daybook needs to know how far it is; its own tables are in there too.
const schema = "notifier"

// large is the amount from which on a posting is noted.
var large = decimal.MustParse("900")

// notifier notes large postings. It has a broker and a database of its own, and nothing of the ledger.
type notifier struct {
	pool  *pgxpool.Pool
	inbox *inbox.Inbox
}

func newNotifier(ctx context.Context, pool *pgxpool.Pool, subscriber message.Subscriber) (*notifier, error) {
	if err := postgres.Migrate(ctx, pool, postgres.MigrateConfig{Schema: schema}); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, tables); err != nil {
		return nil, err
	}
	n := &notifier{pool: pool}
	var err error
	n.inbox, err = inbox.New(pool, subscriber, inbox.Config{Schema: schema, Name: "notices", Topic: topic}, n.posting)
	return n, err
}

const tables = `
CREATE TABLE IF NOT EXISTS notifier.notices (
  entry text, account text, amount numeric NOT NULL, what text NOT NULL, seen timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (entry, account));
CREATE TABLE IF NOT EXISTS notifier.seen (account text PRIMARY KEY, postings bigint NOT NULL)`

// posting is the handler: it runs in the transaction that also moves the inbox, so that each posting counts once, however
// often the broker brings it. An error sets aside the postings of this account, and no others.
func (n *notifier) posting(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	var p Posting
	if err := json.Unmarshal(m.Data, &p); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO notifier.seen AS s VALUES ($1, 1)
		ON CONFLICT (account) DO UPDATE SET postings = s.postings + 1`, p.Account); err != nil {
		return err
	}
	amount, err := decimal.Parse(p.Amount)
	if err != nil || amount.Less(large) {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO notifier.notices (entry, account, amount, what) VALUES ($1, $2, $3, $4)", p.Entry, p.Account, p.Amount, p.What)
	return err
}

// ready waits until the inbox has subscribed.
func (n *notifier) ready(ctx context.Context) error {
	return eventually(ctx, func() (bool, error) { return n.inbox.Lag().Subscribed, nil })
}

// seen is how many postings there were, of all times.
func (n *notifier) seen(ctx context.Context) (postings int, err error) {
	err = n.pool.QueryRow(ctx, "SELECT coalesce(sum(postings), 0) FROM notifier.seen").Scan(&postings)
	return postings, err
}

// print waits until so many postings were seen, and shows what was noted of a run and how far behind the notifier is.
func (n *notifier) print(ctx context.Context, run string, postings int, out io.Writer) error {
	err := eventually(ctx, func() (bool, error) {
		seen, err := n.seen(ctx)
		return seen >= postings, err
	})
	if err != nil {
		return err
	}
	rows, err := n.pool.Query(ctx, "SELECT account, amount::text, what FROM notifier.notices WHERE starts_with(entry, $1) ORDER BY entry, account", run)
	if err != nil {
		return err
	}
	var account, amount, what string
	if _, err := pgx.ForEachRow(rows, []any{&account, &amount, &what}, func() error {
		_, err := fmt.Fprintf(out, "%s %s: %s\n", account, amount, what)
		return err
	}); err != nil {
		return err
	}
	lag, health := n.inbox.Lag(), n.inbox.Health(ctx)
	_, err = fmt.Fprintf(out, "%s: ready %t, %d gaps, in time %t\n", health.State, health.Ready, len(lag.Gaps), lag.Delay < time.Minute)
	return err
}

// eventually asks until the answer is yes.
func eventually(ctx context.Context, is func() (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if yes, err := is(); err != nil || yes {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
