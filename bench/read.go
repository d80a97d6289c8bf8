package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

const (
	logEvents = 1_000_000
	readSlice = 300_000 // events of one timed reading
)

// posted is a payload of the usual kind: ten fields, among them ids, a time and nested lines.
type posted struct {
	Entry    uuid.UUID
	Account  uuid.UUID
	Owner    string
	Text     string
	Cents    int64
	Balance  int64
	At       time.Time
	Approved bool
	Labels   []string
	Lines    []line
}

type line struct {
	Account string
	Cents   int64
}

var postedType = eventstore.TypeOf[posted]("account.posted")

// readFigures compares reading the log in Go, decoded to values, with what psql needs to copy the same rows in binary
// form to nowhere; and it watches the memory of reading a million events.
func readFigures(ctx context.Context, e *env) ([]figure, error) {
	catalog := eventstore.NewCatalog(postedType)
	if err := fillLog(ctx, e, catalog); err != nil {
		return nil, err
	}
	store, err := postgres.New(ctx, e.pool, postgres.Config{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	ratios := make([]float64, 0, rounds)
	for range rounds {
		peer, err := psqlCopy(ctx, e)
		if err != nil {
			return nil, err
		}
		start := time.Now()
		n, err := readDecoded(ctx, store, catalog, readSlice, nil)
		if err != nil {
			return nil, err
		}
		own := float64(n) / time.Since(start).Seconds()
		fmt.Printf("  psql %.0f/s, read %.0f/s\n", peer, own)
		ratios = append(ratios, own/peer)
	}
	peak, err := peakMemory(ctx, store, catalog)
	if err != nil {
		return nil, err
	}
	return []figure{
		newFigure("read", "log in Go, decoded", "", "psql, COPY … TO STDOUT (FORMAT binary) of the same rows", 0.4, true, ratios),
		newFigure("read", "memory while reading 1,000,000 events", " MiB", "a fixed limit", 64, false, []float64{peak}),
	}, nil
}

func readDecoded(ctx context.Context, store *postgres.Store, catalog *eventstore.Catalog, limit int, each func(n int)) (int, error) {
	n, cents := 0, int64(0)
	for e, err := range store.ReadAll(ctx, eventstore.Position{}, eventstore.Filter{Limit: limit}) {
		if err != nil {
			return n, err
		}
		payload, err := catalog.Decode(e)
		if err != nil {
			return n, err
		}
		cents += payload.(posted).Cents
		if n++; each != nil {
			each(n)
		}
	}
	if cents != int64(n) {
		return n, fmt.Errorf("read %d events with a sum of %d", n, cents)
	}
	return n, nil
}

// peakMemory is the most memory, in MiB, that the process held from the system while it read the whole log.
func peakMemory(ctx context.Context, store *postgres.Store, catalog *eventstore.Catalog) (float64, error) {
	runtime.GC()
	var peak uint64
	n, err := readDecoded(ctx, store, catalog, 0, func(n int) {
		if n%5_000 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.Sys-m.HeapReleased)
		}
	})
	if err == nil && n != logEvents {
		err = fmt.Errorf("read %d of %d events", n, logEvents)
	}
	return float64(peak) / (1 << 20), err
}

// fillLog writes a million events with their streams in one statement, of 20 events a stream.
func fillLog(ctx context.Context, e *env, catalog *eventstore.Catalog) error {
	id := uuid.MustParse("0192f0c1-7b1a-7c3e-8f00-000000000003")
	data, err := catalog.Encode(posted{
		Entry: id, Account: id, Owner: "Ada Lovelace", Text: "Monthly rent for the flat in Berlin, paid in advance", Cents: 1, Balance: 123_456,
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Approved: true, Labels: []string{"rent", "home"},
		Lines: []line{{"Assets:Bank:Checking", -85_000}, {"Expenses:Home:Rent", 85_000}},
	})
	if err != nil {
		return err
	}
	for _, sql := range []string{
		`INSERT INTO daybook.streams (stream_id, version, partition) SELECT 'account-' || s, 20, s % 64 FROM generate_series(1, $1::int / 20) s`,
		`INSERT INTO daybook.events (position, version, id, partition, stream_id, type, content_type, tenant, correlation_id, causation_id, actor, data)
		 SELECT nextval('daybook.log_position'), (g - 1) % 20 + 1, gen_random_uuid(), ((g - 1) / 20 + 1) % 64, 'account-' || (g - 1) / 20 + 1,
		        $2, $3, $4, $5, $6, $7, $8 FROM generate_series(1, $1::int) g`,
		`VACUUM ANALYZE daybook.events`,
	} {
		args := []any{}
		switch strings.Count(sql, "$") {
		case 1:
			args = []any{logEvents}
		case 8:
			args = []any{logEvents, data.Type, data.ContentType, sample.Tenant, sample.CorrelationID, sample.CausationID, sample.Actor, data.Data}
		}
		if _, err := e.pool.Exec(ctx, sql, args...); err != nil {
			return err
		}
	}
	return nil
}

func psqlCopy(ctx context.Context, e *env) (float64, error) {
	binary, err := exec.LookPath("psql")
	if beside := filepath.Join(e.server.Binaries().Dir, "psql"); err != nil {
		if _, err := os.Stat(beside); err != nil {
			return 0, errors.New("psql is neither in PATH nor beside the server's binaries")
		}
		binary = beside
	}
	cfg := e.pool.Config().ConnConfig
	sql := fmt.Sprintf("COPY (SELECT * FROM daybook.events ORDER BY position LIMIT %d) TO STDOUT (FORMAT binary)", readSlice)
	cmd := exec.CommandContext(ctx, binary, "-q", "-X", "-h", cfg.Host, "-p", fmt.Sprint(cfg.Port), "-U", cfg.User, "-d", cfg.Database, "-c", sql)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+cfg.Password)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	cmd.Stdout = null
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("psql: %w", err)
	}
	return readSlice / time.Since(start).Seconds(), nil
}
