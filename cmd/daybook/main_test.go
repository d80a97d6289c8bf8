package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := command(&out, &errOut)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
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
	for _, want := range []string{`schema      "daybook", version 1`, store.Epoch().String(), "safe head   1 of 1", "consumers   none"} {
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
	for range 2 {
		if out, err := run(t, "migrate", "--database", url); err != nil || !strings.Contains(out, "up to date") {
			t.Fatalf("migrate: %v\n%s", err, out)
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
