// Command bench measures Daybook against named limits and peers. Each figure is a ratio of two measurements that are
// made in turns on the same server, five times; the median counts. It prints one line for each figure and writes
// figures.json. A bound that is missed is reported as "short".
//
//	go run .            all groups
//	go run . append     one group
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/pgserver"
)

// rounds is how often each pair is measured, in turns.
const rounds = 5

// figure is one line of the report.
type figure struct {
	Group    string    `json:"group"`
	Name     string    `json:"name"`
	Measured float64   `json:"measured"`
	Rounds   []float64 `json:"rounds"`
	Unit     string    `json:"unit"`
	// Bound is the least (AtLeast) or the greatest value that is good.
	Bound   float64 `json:"bound"`
	AtLeast bool    `json:"at_least"`
	OK      bool    `json:"ok"`
	Against string  `json:"against"`
}

func (f figure) String() string {
	verdict, sign := "ok", "≤"
	if !f.OK {
		verdict = "short"
	}
	if f.AtLeast {
		sign = "≥"
	}
	return fmt.Sprintf("%-58s %9.2f%s  %s %.2f%s  %-5s  [%s]  against %s", f.Group+": "+f.Name, f.Measured, f.Unit, sign, f.Bound, f.Unit,
		verdict, strings.Join(texts(f.Rounds), " "), f.Against)
}

func texts(values []float64) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = fmt.Sprintf("%.2f", v)
	}
	return list
}

func newFigure(group, name, unit, against string, bound float64, atLeast bool, values []float64) figure {
	m := median(values)
	return figure{
		Group: group, Name: name, Measured: m, Rounds: values, Unit: unit, Bound: bound, AtLeast: atLeast,
		OK: (m >= bound) == atLeast || m == bound, Against: against,
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// group measures related figures on a fresh database.
type group struct {
	name string
	run  func(ctx context.Context, e *env) ([]figure, error)
}

var groups = []group{
	{"append", appendFigures},
	{"read", readFigures},
	{"latency", latencyFigures},
	{"hot", hotFigures},
	{"commands", commandFigures},
	{"stream", streamFigures},
	{"streamlatency", streamLatencyFigures},
	{"relays", relayFigures},
	{"letters", letterFigures},
	{"timers", timerFigures},
	{"sagas", sagaFigures},
}

// env is what a group works with.
type env struct {
	server *pgserver.Server
	pool   *pgxpool.Pool
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) error {
	server, err := pgserver.Start(ctx, pgserver.Options{Fsync: true, Settings: map[string]string{"shared_buffers": "512MB", "max_wal_size": "4GB"}})
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Printf("PostgreSQL %s, fsync on, server and clients on this machine\n", server.Version())
	var figures []figure
	known := false
	for _, g := range groups {
		if only != "" && only != g.name {
			continue
		}
		known = true
		list, err := runGroup(ctx, server, g)
		if err != nil {
			return fmt.Errorf("bench: %s: %w", g.name, err)
		}
		figures = append(figures, list...)
	}
	if !known {
		return fmt.Errorf("bench: no group %q; there are append, read, latency, hot, commands, stream, streamlatency, relays, letters, timers, sagas", only)
	}
	return write(figures, only == "")
}

func runGroup(ctx context.Context, server *pgserver.Server, g group) ([]figure, error) {
	pool, err := freshDatabase(ctx, server, "bench_"+g.name)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	started := time.Now()
	list, err := g.run(ctx, &env{server: server, pool: pool})
	for _, f := range list {
		fmt.Println(f)
	}
	fmt.Printf("%s took %s\n", g.name, time.Since(started).Round(time.Second))
	return list, err
}

func freshDatabase(ctx context.Context, server *pgserver.Server, name string) (*pgxpool.Pool, error) {
	admin, err := pgxpool.New(ctx, server.URL())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.Database = name
	cfg.MaxConns = 40
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return pool, errors.Join(postgres.Migrate(ctx, pool, postgres.MigrateConfig{}))
}

func write(figures []figure, all bool) error {
	short := 0
	for _, f := range figures {
		if !f.OK {
			short++
		}
	}
	fmt.Printf("%d figures, %d short\n", len(figures), short)
	if !all {
		return nil // a part must not replace the whole report
	}
	data, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("figures.json"), append(data, '\n'), 0o644)
}
