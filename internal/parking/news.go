package parking

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// News are what changes have done that somebody may want to hear of.
type News struct {
	// Parked are failures after which a sequence waits for people.
	Parked []ParkedNews
	// Released are sequences that go on with the others after they have waited for people. What an owner finds on its way
	// counts as that.
	Released []Sequence
	// Stopped are plans that have ended because too much of them failed.
	Stopped []StoppedNews
}

// ParkedNews is the last failure of a message before it is parked, and how many there were, those before a redrive included.
type ParkedNews struct {
	Failure
	Attempts int
}

// StoppedNews is a plan that has stopped, and how much of it has failed.
type StoppedNews struct {
	Redrive uuid.UUID
	Failed  int
}

// News returns what the changes have done. Call it after Committed.
func (c *Changes) News() News { return c.news }

func (c *Changes) parks(f Failure, attempts int) {
	if f.Due.IsZero() {
		c.news.Parked = append(c.news.Parked, ParkedNews{f, attempts})
	}
}

// tally counts an item that has ended. Whether that stops the plan, among several owners, its locked row says.
func (c *Changes) tally(b *pgx.Batch, i Item, outcome string, now time.Time) {
	x := c.set.texts
	if outcome != ItemFailed {
		b.Queue(x.tally, i.Redrive, i.Item, outcome, now)
		return
	}
	var was, is string
	var failed int
	b.Queue(x.lock, i.Redrive).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&was}, func() error { return nil })
		return err
	})
	b.Queue(x.tally, i.Redrive, i.Item, outcome, now).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&is, &failed}, func() error { return nil })
		if err == nil && was == "running" && is == "stopped" {
			c.news.Stopped = append(c.news.Stopped, StoppedNews{i.Redrive, failed})
		}
		return err
	})
}
