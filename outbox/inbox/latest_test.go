package inbox

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
)

// What carries its whole state: the last version counts, whatever is lost, repeated or late. Nothing is held.
func TestLatest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec("CREATE TABLE articles (key text PRIMARY KEY, state bigint)")
	w.broker.lanes = 3
	cfg := w.config()
	cfg.Mode = Latest
	put := func(ctx context.Context, tx pgx.Tx, m Message) error {
		tag, err := tx.Exec(ctx, `INSERT INTO articles AS a VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET state = excluded.state WHERE a.state < excluded.state`,
			m.PartitionKey, m.Position.Ordinal())
		if err == nil && tag.RowsAffected() == 0 {
			t.Errorf("%s was put back to %s", m.PartitionKey, m.Position)
		}
		return err
	}
	random := rand.New(rand.NewPCG(1, 1))
	all := w.pub.several(300, func(int) int { return random.IntN(20) })
	var some []*message.Message
	last := map[string]int64{}
	for _, m := range all {
		if random.IntN(10) > 0 {
			some = append(some, m.event())
			last[m.key] = m.position
		}
	}
	stop := w.start(w.inbox(cfg, put))
	w.broker.send(shuffled(random, some, 50)...)
	w.broker.send(all[3].skip(), w.pub.head(3))
	w.drained()
	stop()
	w.broker.send(some[:50]...)
	w.start(w.inbox(cfg, put))
	w.drained()
	got := map[string]int64{}
	rows, _ := w.pool.Query(t.Context(), "SELECT key, state FROM articles")
	var key string
	var state int64
	if _, err := pgx.ForEachRow(rows, []any{&key, &state}, func() error { got[key] = state; return nil }); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, last) {
		t.Errorf("articles are %v, want %v", got, last)
	}
	if n := ask[int](w, "SELECT (SELECT count(*) FROM daybook.held) + (SELECT count(*) FROM daybook.parked)"); n != 0 {
		t.Errorf("%d rows are held", n)
	}
}

// The version may be the message's own.
func TestLatestByTheMessagesOwnVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config()
	cfg.Mode = Latest
	cfg.Latest = func(m Message) (string, int64, error) {
		v, err := strconv.ParseInt(string(m.Data), 10, 64)
		return "article", v, err
	}
	var texts []string
	for i, data := range []string{"1", "3", "2", "x", "3", "4"} {
		m := w.pub.next(i)
		m.data = data
		w.broker.send(m.event())
		if slices.Contains([]string{"1", "3", "4"}, data) && i != 4 {
			texts = append(texts, data)
		}
	}
	cfg.Classify = nil
	cfg.Attempts = 1
	w.start(w.inbox(cfg, write))
	w.drained()
	w.applied(3)
	if got := ask[[]string](w, "SELECT array_agg(data ORDER BY n) FROM applied"); !slices.Equal(got, texts) {
		t.Errorf("applied %v, want %v", got, texts)
	}
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.letters WHERE state = 'parked'"); n != 1 {
		t.Errorf("%d letters, want one", n)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := Config{Topic: "\x01", Partitions: -1, Mode: 7, StartAt: 7, Subscriptions: -1, HoldFor: -1, HoldAtMost: -1, GapAfter: -1, Version: -1, Attempts: -1}
	bad.Latest = func(Message) (string, int64, error) { return "", 0, nil }
	_, err := New(nil, nil, bad, nil)
	for _, field := range []string{"Topic", "Partitions", "Mode", "StartAt", "Subscriptions", "HoldFor", "HoldAtMost", "GapAfter", "Version", "Attempts", "Name", "pool", "subscriber", "handler"} {
		if err == nil || !containsWord(err.Error(), field) {
			t.Errorf("%s is not refused: %v", field, err)
		}
	}
	in := w.inbox(w.config(), write)
	stop := w.start(in)
	w.eventually("it runs", func() bool { return in.Health(context.Background()).State == "running" })
	if err := in.Run(t.Context()); err == nil {
		t.Error("Run runs twice")
	}
	stop()
	other := w.config()
	other.Partitions = 16
	var shape *ShapeError
	if err := w.inbox(other, write).Run(t.Context()); !errors.As(err, &shape) {
		t.Errorf("another number of partitions: %v", err)
	}
	other = w.config()
	other.Schema = "nowhere"
	var missing *NotInstalledError
	if err := w.inbox(other, write).Run(t.Context()); !errors.As(err, &missing) {
		t.Errorf("no tables: %v", err)
	}
}

func containsWord(text, word string) bool { return slices.Contains(wordsOf(text), word) }

func wordsOf(text string) []string {
	var words []string
	word := ""
	for _, r := range text + " " {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			word += string(r)
			continue
		}
		words, word = append(words, word), ""
	}
	return words
}
