package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

const (
	eventsPerAppend = 3
	appendsPerName  = 20 // a new stream after this many appends
	slot            = 2 * time.Second
)

// payload is the data of every event: 300 bytes that do not compress to nothing.
var payload = bytes.Repeat([]byte("0123456789abcdefghijklmnopqrst"), 10)

var sample = eventstore.Metadata{
	Tenant: "tenant-1", CorrelationID: "0192f0c1-7b1a-7c3e-8f00-000000000001", CausationID: "0192f0c1-7b1a-7c3e-8f00-000000000002", Actor: "clerk-17",
}

// appendFigures compares appends with what pgbench reaches by inserting the same rows into a flat table with the same
// two indexes and no check at all, with as many clients.
func appendFigures(ctx context.Context, e *env) ([]figure, error) {
	store, err := postgres.New(ctx, e.pool, postgres.Config{MaxConns: 32})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if _, err := e.pool.Exec(ctx, flatTableSQL); err != nil {
		return nil, err
	}
	script, remove, err := pgbenchScript()
	if err != nil {
		return nil, err
	}
	defer remove()
	var figures []figure
	for _, c := range []struct {
		clients int
		bound   float64
	}{{1, 0.6}, {32, 0.35}} {
		ratios := make([]float64, 0, rounds)
		if _, err := appendFor(ctx, store, c.clients, slot/4); err != nil { // warm connections, plans and pages
			return nil, err
		}
		for range rounds {
			peer, err := pgbench(ctx, e, script, c.clients)
			if err != nil {
				return nil, err
			}
			own, err := appendFor(ctx, store, c.clients, slot)
			if err != nil {
				return nil, err
			}
			fmt.Printf("  %d clients: pgbench %.0f/s, append %.0f/s\n", c.clients, peer, own)
			ratios = append(ratios, own/peer)
		}
		figures = append(figures, newFigure("append", fmt.Sprintf("direct, 3 events, %d callers", c.clients), "",
			"pgbench -M prepared, same rows and indexes", c.bound, true, ratios))
	}
	return figures, nil
}

var benchRun atomic.Int64

// appendFor lets callers append for a time and returns appends per second.
func appendFor(ctx context.Context, store eventstore.Appender, callers int, d time.Duration) (float64, error) {
	ctx = eventstore.WithMetadata(ctx, sample)
	run := benchRun.Add(1)
	var total atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, callers)
	start := time.Now()
	for c := range callers {
		wg.Go(func() {
			for i := 0; time.Since(start) < d; i++ {
				stream := eventstore.NewStreamID("account", fmt.Sprintf("%d-%d-%d", run, c, i/appendsPerName))
				events := make([]eventstore.EventData, eventsPerAppend)
				for k := range events {
					events[k] = eventstore.EventData{Type: "account.deposited", ContentType: eventstore.Msgpack.ContentType(), Data: payload}
				}
				expected := eventstore.Exactly(eventstore.Version(i % appendsPerName * eventsPerAppend))
				if _, err := store.Append(ctx, eventstore.To(stream, expected, events...)); err != nil {
					errs <- err
					return
				}
				total.Add(1)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(total.Load()) / time.Since(start).Seconds(), nil
	}
}

// pgbenchScript writes the transaction: one INSERT of three rows with the bytes and columns of our events.
func pgbenchScript() (path string, remove func(), err error) {
	row := fmt.Sprintf("(nextval('flat_position'), :v%%d, clock_timestamp(), gen_random_uuid(), 7, 1, 0, 'account-' || :client_id || '-' || :s, '', "+
		"'account.deposited', 'application/msgpack', '%s', '%s', '%s', '%s', '', '%s'::bytea)",
		sample.Tenant, sample.CorrelationID, sample.CausationID, sample.Actor, string(payload))
	var rows []string
	for k := range eventsPerAppend {
		rows = append(rows, fmt.Sprintf(row, k+1))
	}
	// A stream name that never comes back keeps (stream_id, version) unique without a check.
	text := "\\set s random(1, 1000000000000000)\n\\set v1 1\n\\set v2 2\n\\set v3 3\nINSERT INTO flat VALUES " + strings.Join(rows, ", ") + ";\n"
	dir, err := os.MkdirTemp("", "daybook-bench")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "insert.sql")
	return path, func() { os.RemoveAll(dir) }, os.WriteFile(path, []byte(text), 0o600)
}

func pgbench(ctx context.Context, e *env, script string, clients int) (float64, error) {
	binary := filepath.Join(e.server.Binaries().Dir, "pgbench")
	if _, err := os.Stat(binary); err != nil {
		return 0, fmt.Errorf("pgbench is not beside the server's binaries; install the PostgreSQL contrib or server package that has it: %w", err)
	}
	cfg := e.pool.Config().ConnConfig
	cmd := exec.CommandContext(ctx, binary, "-n", "-M", "prepared", "-f", script, "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(clients, 2)),
		"-T", strconv.Itoa(int(slot.Seconds())), "-h", cfg.Host, "-p", strconv.Itoa(int(cfg.Port)), "-U", cfg.User, cfg.Database)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+cfg.Password)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(line, "tps = "); ok {
			number, _, _ := strings.Cut(rest, " ")
			return strconv.ParseFloat(number, 64)
		}
	}
	return 0, fmt.Errorf("pgbench: no tps in %q", out)
}

const flatTableSQL = `
CREATE SEQUENCE flat_position;
CREATE TABLE flat (
  position bigint PRIMARY KEY, version bigint NOT NULL, recorded_at timestamptz NOT NULL, id uuid NOT NULL, partition int NOT NULL,
  schema_version int NOT NULL, flags int NOT NULL, stream_id text COLLATE "C" NOT NULL, partition_key text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL, content_type text COLLATE "C" NOT NULL, tenant text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C" NOT NULL, causation_id text COLLATE "C" NOT NULL, actor text COLLATE "C" NOT NULL,
  headers bytea NOT NULL, data bytea NOT NULL, UNIQUE (stream_id, version));`
