package postgres

import (
	"context"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// Statements returns every statement of a store by the name of its field, so that a statement added later cannot be
// forgotten by a test that walks over all of them.
func Statements(schema string) map[string]string {
	sql := newStatements(schema)
	v := reflect.ValueOf(sql)
	all := make(map[string]string, v.NumField())
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		if field.Kind() != reflect.Struct {
			all[name] = field.String()
			continue
		}
		for k := range field.NumField() {
			all[name+"."+field.Type().Field(k).Name] = field.Field(k).String()
		}
	}
	return all
}

// Expand writes the schema into SQL as the package does.
func Expand(sql, schema string) string { return expand(sql, schema) }

// Latest is the number of the last migration.
func Latest() int { return latestVersion() }

// Pool is the store's own pool.
func (s *Store) Pool() *pgxpool.Pool { return s.pool.Pool }

// Listening reports whether notifications are being listened for.
func (s *Store) Listening() bool { return s.listening.Load() }

// HeadSteps reads the head on a transaction of the caller's and calls between before the page is read, as two
// statements of one pipeline would with something happening between them.
func (s *Store) HeadSteps(ctx context.Context, tx pgx.Tx, after int64, between func()) (safe int64, events []eventstore.RecordedEvent, err error) {
	known := s.head.highest.Load()
	var got headReading
	p := newPipeline()
	s.queueHead(p, known, &got)
	if err := p.unnamed(ctx, tx.Conn()); err != nil {
		return 0, nil, err
	}
	if between != nil {
		between()
	}
	var page eventstore.Page
	p = newPipeline()
	s.queuePage(p, after, after+window, eventstore.Filter{}, logPage, 0, &page)
	if err := p.unnamed(ctx, tx.Conn()); err != nil {
		return 0, nil, err
	}
	if got.safe != nil {
		safe = *got.safe
	}
	return safe, page.Events, nil
}

// FirstReading looks for the end of the log as New does, on a transaction of the caller's.
func (s *Store) FirstReading(ctx context.Context, tx pgx.Tx) error {
	var drawn int64
	if err := tx.QueryRow(ctx, s.sql.lastDrawn).Scan(&drawn); err != nil {
		return err
	}
	var got headReading
	p := newPipeline()
	s.queueHead(p, max(drawn-startDistance, 0), &got)
	return p.unnamed(ctx, tx.Conn())
}

// Poll is how long the last wait would have waited at most.
func (l *Log) Poll() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.poll
}

// Due is when a wait that nothing ends would look by itself.
func (l *Log) Due() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.due
}

// HealthWithin is Health with another limit for holding the head.
func (s *Store) HealthWithin(ctx context.Context, patience time.Duration) eventstore.Health {
	return s.health(ctx, patience)
}

// WatchHead is the part of Run that logs who holds the head, with other times.
func (s *Store) WatchHead(ctx context.Context, every, patience time.Duration) error {
	return s.watchHead(ctx, every, patience)
}

// OutboxPage reads a page and the head on a transaction of the caller's.
func (s *Store) OutboxPage(ctx context.Context, tx pgx.Tx, q eventstore.OutboxQuery) (eventstore.OutboxPage, error) {
	r := outboxReading{query: q, after: q.After.Ordinal(), end: q.After.Ordinal() + window}
	var got headReading
	p := newPipeline()
	p.add(s.sql.outboxSettings, nil, "0")
	s.queueHead(p, s.head.highest.Load(), &got)
	r.queue(p, s)
	if err := p.unnamed(ctx, tx.Conn()); err != nil {
		return eventstore.OutboxPage{}, err
	}
	r.page.Through = eventstore.PositionAt(r.through)
	return r.page, nil
}

// MigrateTo applies the migrations up to version, as an earlier release would.
func MigrateTo(ctx context.Context, pool *pgxpool.Pool, cfg MigrateConfig, version int) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	list, err := migrations()
	if err != nil {
		return err
	}
	for _, m := range list[:version] {
		if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return m.apply(ctx, tx, cfg) }); err != nil {
			return err
		}
	}
	return nil
}

// TurnOutcomes is the part of Run that removes old keys.
func (s *Store) TurnOutcomes(ctx context.Context) error { return s.turnOutcomes(ctx) }

// HashRequest is what is stored of a request.
func (s *Store) HashRequest(claim eventstore.Claim) []byte { return s.hashRequest(claim) }

// Serves reports whether the schema works with a program that was made for a version.
func Serves(ctx context.Context, pool *pgxpool.Pool, schema string, version int) error {
	have, err := schemaVersion(ctx, pool, schema)
	if err != nil {
		return err
	}
	return checkVersion(ctx, pool, schema, have, version)
}

// SetIdleLimit changes how long f of WithStreamsLocked may do something else.
func (s *Store) SetIdleLimit(d time.Duration) { s.idleLimit = d }

// SlotsSQL reads replication slots that keep so many bytes.
const SlotsSQL = slotsSQL
