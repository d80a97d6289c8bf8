package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/pgserver"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return runFinding(t, "", args...)
}

// runFinding runs the program on a machine whose kept server has the URL kept.
func runFinding(t *testing.T, kept string, args ...string) (string, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := command(&settings{out: &out, errOut: &errOut, find: func(context.Context, io.Writer) (string, func(), error) {
		if kept == "" {
			t.Errorf("%v looked for a server", args)
			return "", nil, errors.New("no kept server")
		}
		return kept, func() {}, nil
	}})
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return lines[len(lines)-1]
}

// newestVersion is the version of a schema that is up to date: there is a file for each.
func newestVersion(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("../../eventstore/postgres/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d migrations, %v", len(files), err)
	}
	return strconv.Itoa(len(files))
}

func TestMigrateSaysWhereItDidWhat(t *testing.T) {
	t.Setenv(pgserver.RunVariable, "")
	cfg := postgrestest.Empty(t).Config().ConnConfig
	url := fmt.Sprintf("postgres://%s:%s@%s:%d/%s", cfg.User, cfg.Password, cfg.Host, cfg.Port, cfg.Database)
	in := fmt.Sprintf(", in %s:%d/%s", cfg.Host, cfg.Port, cfg.Database)
	kept := in + " (this machine's kept development server)"
	newest := newestVersion(t)
	for _, c := range []struct {
		variable string
		args     []string
		want     string
	}{
		{"", []string{"migrate"}, `schema "daybook" installed, version ` + newest + kept},
		{"", []string{"migrate"}, `schema "daybook" is up to date, version ` + newest + kept},
		{"", []string{"migrate", "--database", url}, `schema "daybook" is up to date, version ` + newest + in},
		{url, []string{"migrate"}, `schema "daybook" is up to date, version ` + newest + in},
		{url, []string{"migrate", "--schema", "other"}, `schema "other" installed, version ` + newest + in},
	} {
		t.Setenv(pgserver.RunVariable, c.variable)
		out, err := runFinding(t, url, c.args...)
		if err != nil || lastLine(out) != c.want {
			t.Errorf("%s: %v\n got %s\nwant %s", c.args, err, lastLine(out), c.want)
		}
		if cfg.Password != "" && strings.Contains(out, cfg.Password) {
			t.Errorf("%s shows the password", c.args)
		}
	}
	if out, err := runFinding(t, url, "migrate", "--database", ""); err == nil || !strings.Contains(err.Error(), "--database is empty") {
		t.Errorf("an empty --database: %v, %s", err, out)
	}
	if got, want := outcome(1, 3), "updated from version 1 to 3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Settling the epoch of a database that nobody named would harm that one, and leave the moved one as it was.
func TestEpochIsNeverSettledInADatabaseThatNobodyNamed(t *testing.T) {
	t.Setenv(pgserver.RunVariable, "")
	pool := postgrestest.New(t)
	url := postgrestest.URL(pool)
	before, err := postgres.ReadEpoch(t.Context(), pool, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"keep", "new"} {
		const want = "no database: give --database URL or set DAYBOOK_DATABASE_URL"
		if _, err := runFinding(t, url, "epoch", what); err == nil || err.Error() != want {
			t.Errorf("epoch %s: %v, want %s", what, err, want)
		}
	}
	if out, err := runFinding(t, url, "epoch"); err != nil || !strings.Contains(out, before.Epoch.String()) {
		t.Errorf("epoch, which only shows, or the epoch changed: %v\n%s", err, out)
	}
	t.Setenv(pgserver.RunVariable, url)
	if out, err := runFinding(t, url, "epoch", "new"); err != nil || strings.Contains(out, before.Epoch.String()) {
		t.Errorf("epoch new with the variable: %v\n%s", err, out)
	}
}

func TestWithoutAStoreEveryCommandSaysSo(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(postgrestest.Empty(t))
	for _, args := range [][]string{{"status"}, {"check"}, {"epoch"}, {"epoch", "keep"}, {"epoch", "new"}} {
		_, err := run(t, append(args, "--database", url)...)
		if err == nil || !strings.Contains(err.Error(), `no Daybook store in schema "daybook"`) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestStatusNamesTheHolderOfTheHead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := postgrestest.New(t)
	url := pool.Config().ConnString()
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	event := eventstore.EventData{Type: "account.opened", Data: []byte("x")}
	if _, err := store.Append(ctx, eventstore.To(eventstore.NewStreamID("account", "1"), eventstore.NoStream, event)); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "status", "--database", url)
	if err != nil {
		t.Fatal(err)
	}
	newest := newestVersion(t)
	for _, want := range []string{`schema      "daybook", version ` + newest, store.Epoch().String(), "safe head   1 of 1", "consumers   none"} {
		if !strings.Contains(out, want) {
			t.Errorf("status lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "held by") {
		t.Errorf("nobody holds the head:\n%s", out)
	}

	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := store.WithTx(tx).Append(ctx, eventstore.To(eventstore.NewStreamID("account", "2"), eventstore.NoStream, event)); err != nil {
		t.Fatal(err)
	}
	out, err = run(t, "status", "--database", url)
	if err != nil || !strings.Contains(out, "held by     process ") {
		t.Errorf("status does not name the holder: %v\n%s", err, out)
	}
}

func TestMigrateIsForwardOnly(t *testing.T) {
	t.Parallel()
	url := postgrestest.Empty(t).Config().ConnString()
	if _, err := run(t, "status", "--database", url); err == nil || !strings.Contains(err.Error(), "run `daybook migrate`") {
		t.Errorf("status before migrate: %v, want the command that helps", err)
	}
	for _, want := range []string{"installed", "up to date"} {
		if out, err := run(t, "migrate", "--database", url); err != nil || !strings.Contains(out, want) {
			t.Fatalf("migrate: %v, want %q\n%s", err, want, out)
		}
	}
	if _, err := run(t, "migrate", "down", "--database", url); err == nil || !strings.Contains(err.Error(), "forward only") {
		t.Errorf("migrate down: %v, want a refusal", err)
	}
	if out, err := run(t, "check", "--database", url); err != nil || out != "no defects\n" {
		t.Errorf("check: %v %q", err, out)
	}
}

func TestEpochSettlesAMovedStore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := postgrestest.New(t)
	url := pool.Config().ConnString()
	if _, err := pool.Exec(ctx, `UPDATE daybook.store SET system_identifier = system_identifier + 1`); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "status", "--database", url); err == nil || !strings.Contains(err.Error(), "epoch new") {
		t.Errorf("status of a moved store: %v, want the remedy", err)
	}
	before, err := postgres.ReadEpoch(ctx, pool, "")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := run(t, "epoch", "keep", "--database", url); err != nil || !strings.Contains(out, before.Epoch.String()) {
		t.Errorf("epoch keep: %v\n%s", err, out)
	}
	if out, err := run(t, "epoch", "new", "--database", url); err != nil || strings.Contains(out, before.Epoch.String()) {
		t.Errorf("epoch new kept the epoch: %v\n%s", err, out)
	}
}

func TestCheckFindsWhatWasInsertedByHand(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	const insert = `INSERT INTO daybook.events (version, id, partition, stream_id, type, data)
		VALUES (1, gen_random_uuid(), daybook.partition_of('account-9', 64), 'account-9', 'account.opened', '')`
	if _, err := pool.Exec(context.Background(), insert); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "check", "--database", pool.Config().ConnString())
	if err == nil || !strings.Contains(out, `stream "account-9": has events but no head`) {
		t.Errorf("check: %v\n%s", err, out)
	}
}
