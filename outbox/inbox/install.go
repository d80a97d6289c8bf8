package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// kind is what an inbox is called among consumers.
const kind = "inbox"

// shape is what cannot change once something is applied.
func (c Config) shape() string {
	mode := "chain"
	if c.Mode == Latest {
		mode = "latest"
	}
	return fmt.Sprintf("%s, %d partitions", mode, c.Partitions)
}

// install registers the inbox where it is not, and compares it where it is. It creates no tables.
func (in *Inbox) install(ctx context.Context, db *pgxpool.Pool) error {
	var there bool
	name := pgx.Identifier{in.cfg.Schema, "inbox_versions"}.Sanitize()
	if err := db.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&there); err != nil {
		return fmt.Errorf("inbox: check %s: %w", in.ref, err)
	}
	if !there {
		return &NotInstalledError{Inbox: in.ref.Name, Schema: in.cfg.Schema}
	}
	if _, err := db.Exec(ctx, in.sql.register, in.ref.Name, in.ref.Version, kind, in.cfg.shape(), in.cfg.Partitions-1); err != nil {
		return fmt.Errorf("inbox: register %s: %w", in.ref, err)
	}
	var was, shape string
	err := db.QueryRow(ctx, in.sql.check, in.ref.Name, in.ref.Version).Scan(&was, &shape)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("inbox: check %s: it was removed meanwhile", in.ref)
	case err != nil:
		return fmt.Errorf("inbox: check %s: %w", in.ref, err)
	case was != kind || shape != in.cfg.shape():
		return &ShapeError{Inbox: in.ref.Name, Version: in.ref.Version, Have: was + ": " + shape, Want: kind + ": " + in.cfg.shape()}
	}
	return nil
}

const registerSQL = `
WITH c AS (
  INSERT INTO {schema}.consumers (consumer, version, kind, fingerprint) VALUES ($1, $2, $3, $4)
  ON CONFLICT (consumer, version) DO NOTHING
  RETURNING consumer, version)
INSERT INTO {schema}.segments (consumer, version, segment, first_partition, last_partition)
SELECT c.consumer, c.version, 0, 0, $5 FROM c`

const checkSQL = `SELECT kind, fingerprint FROM {schema}.consumers WHERE consumer = $1 AND version = $2`
