package inbox

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// latestPlan passes by what is older than what took effect last, or as old.
type latestPlan struct {
	plan
	keys     []string
	versions []int64
	seen     map[string]int64 // the versions that took effect
}

func (p *plan) latest() (consumer.Plan, error) {
	l := &latestPlan{plan: *p, keys: make([]string, len(p.events)), versions: make([]int64, len(p.events))}
	for i, e := range p.events {
		var err error
		if l.keys[i], l.versions[i], err = p.a.in.stateOf(e); err != nil {
			return nil, &consumer.EventError{Index: i, Err: err}
		}
	}
	return l, nil
}

// stateOf says what a message is about, and which version of it it has.
func (in *Inbox) stateOf(e eventstore.RecordedEvent) (string, int64, error) {
	switch {
	case in.cfg.Latest != nil:
		return in.cfg.Latest(Message{RecordedEvent: e, Topic: in.cfg.Topic})
	case e.Version > 0:
		return "stream " + e.Stream.String(), int64(e.Version), nil
	}
	return "key " + e.PartitionKey, e.Position.Ordinal(), nil
}

// Load implements [consumer.Plan].
func (p *latestPlan) Load(b *pgx.Batch) {
	keys := slices.Compact(slices.Sorted(slices.Values(p.keys)))
	p.seen = make(map[string]int64, len(keys))
	in := p.a.in
	b.Queue(in.sql.versions, in.ref.Name, in.ref.Version, keys).Query(func(rows pgx.Rows) error {
		var key string
		var version int64
		_, err := pgx.ForEachRow(rows, []any{&key, &version}, func() error { p.seen[key] = version; return nil })
		return err
	})
}

// Apply implements [consumer.Plan].
func (p *latestPlan) Apply(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	guarded := consumer.Guard(tx)
	moved := map[string]int64{}
	for i, key := range p.keys {
		if last, ok := p.seen[key]; ok && p.versions[i] <= last {
			p.a.in.state.repeated.Add(1)
			continue
		}
		if err := p.run(ctx, tx, guarded, i); err != nil {
			return &consumer.EventError{Index: i, Err: err}
		}
		p.seen[key], moved[key] = p.versions[i], p.versions[i]
	}
	if len(moved) == 0 {
		return nil
	}
	var keys []string
	var versions []int64
	for key, version := range moved {
		keys, versions = append(keys, key), append(versions, version)
	}
	in := p.a.in
	b.Queue(in.sql.keep, in.ref.Name, in.ref.Version, keys, versions)
	return nil
}

const (
	versionsSQL = `SELECT key, last FROM {schema}.inbox_versions WHERE consumer = $1 AND version = $2 AND key = ANY ($3::text[])`

	keepSQL = `
INSERT INTO {schema}.inbox_versions AS v (consumer, version, key, last)
SELECT $1, $2, u.key, u.last FROM unnest($3::text[], $4::bigint[]) AS u(key, last) ORDER BY u.key
ON CONFLICT (consumer, version, key) DO UPDATE SET last = excluded.last WHERE v.last < excluded.last`
)
