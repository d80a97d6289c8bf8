package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// errOther: the key was used for another request.
var errOther = errors.New("provider: the key is that of another request")

// install makes the tables; processes that do so at the same time wait for each other.
func (p *Provider) install(ctx context.Context) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('payment_provider'))"); err != nil {
			return fmt.Errorf("provider: install: %w", err)
		}
		if _, err := tx.Exec(ctx, tablesSQL); err != nil {
			return fmt.Errorf("provider: install: %w", err)
		}
		return nil
	})
}

const tablesSQL = `
CREATE SCHEMA IF NOT EXISTS payment_provider;
CREATE TABLE IF NOT EXISTS payment_provider.charges (
  charge   text PRIMARY KEY,            -- the key under which it was asked for
  order_id text   NOT NULL,
  account  text   NOT NULL,
  card     text   NOT NULL,
  cents    bigint NOT NULL,
  outcome  text   NOT NULL,             -- 'taken', 'declined', 'busy', 'lost', 'void'
  refunded bigint NOT NULL DEFAULT 0,
  made_at  timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX IF NOT EXISTS charges_order ON payment_provider.charges (order_id);
CREATE TABLE IF NOT EXISTS payment_provider.refunds (
  key     text PRIMARY KEY,
  charge  text   NOT NULL,
  cents   bigint NOT NULL,              -- what was answered
  made_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE IF NOT EXISTS payment_provider.webhooks (
  webhook bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  charge  text NOT NULL,
  copies  int  NOT NULL,                -- how often it is still to be sent
  tries   int  NOT NULL DEFAULT 0,
  due_at  timestamptz NOT NULL);
CREATE INDEX IF NOT EXISTS webhooks_due ON payment_provider.webhooks (due_at) WHERE copies > 0`

// booked is what the books say of a charge.
type booked struct {
	script
	fresh   bool  // it was not known before
	webhook int64 // of a fresh one
}

// charge books a charge, once.
func (p *Provider) charge(ctx context.Context, key string, c Charge) (b booked, err error) {
	err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		var again bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM payment_provider.charges WHERE order_id = $1 AND charge <> $2)",
			c.Order, key).Scan(&again); err != nil {
			return err
		}
		b = booked{script: scriptFor(c, p.cfg.Seed, again)}
		made, err := tx.Exec(ctx, `INSERT INTO payment_provider.charges (charge, order_id, account, card, cents, outcome)
			VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`, key, c.Order, c.Account, c.Card, c.Cents, b.outcome)
		if err != nil {
			return err
		}
		if b.fresh = made.RowsAffected() == 1; !b.fresh {
			return b.known(ctx, tx, key, c)
		}
		if b.outcome == taken && b.copies > 0 {
			return tx.QueryRow(ctx, `INSERT INTO payment_provider.webhooks (charge, copies, due_at)
				VALUES ($1, $2, clock_timestamp() + $3) RETURNING webhook`, key, b.copies, b.late).Scan(&b.webhook)
		}
		return nil
	})
	return b, err
}

// known fills in what became of a charge that is in the books already.
func (b *booked) known(ctx context.Context, tx pgx.Tx, key string, c Charge) error {
	var before Charge
	if err := tx.QueryRow(ctx, "SELECT order_id, account, card, cents, outcome FROM payment_provider.charges WHERE charge = $1", key).
		Scan(&before.Order, &before.Account, &before.Card, &before.Cents, &b.outcome); err != nil {
		return err
	}
	if b.outcome != void && before != c {
		return errOther
	}
	return nil
}

// refund gives back what a charge took, once, and sees to it that a charge that is not known never takes anything.
func (p *Provider) refund(ctx context.Context, key, charge string) (r Refund, err error) {
	r.Charge = charge
	err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO payment_provider.charges (charge, order_id, account, card, cents, outcome)
			VALUES ($1, '', '', '', 0, $2) ON CONFLICT DO NOTHING`, charge, void); err != nil {
			return err
		}
		var card, outcome string
		var cents, before int64
		if err := tx.QueryRow(ctx, "SELECT card, outcome, cents, refunded FROM payment_provider.charges WHERE charge = $1 FOR UPDATE", charge).
			Scan(&card, &outcome, &cents, &before); err != nil {
			return err
		}
		if outcome == taken {
			r.Cents = cents
		}
		made, err := tx.Exec(ctx, "INSERT INTO payment_provider.refunds (key, charge, cents) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
			key, charge, r.Cents)
		if err != nil {
			return err
		}
		if made.RowsAffected() == 0 {
			var of string
			if err := tx.QueryRow(ctx, "SELECT charge, cents FROM payment_provider.refunds WHERE key = $1", key).Scan(&of, &r.Cents); err != nil {
				return err
			}
			if of != charge {
				return errOther
			}
			return nil
		}
		if outcome != taken || before > 0 {
			return nil
		}
		if _, err := tx.Exec(ctx, "UPDATE payment_provider.charges SET refunded = cents WHERE charge = $1", charge); err != nil {
			return err
		}
		if card != CardSilent {
			return nil
		}
		// Only now it tells that it had taken something.
		_, err = tx.Exec(ctx, "INSERT INTO payment_provider.webhooks (charge, copies, due_at) VALUES ($1, 1, clock_timestamp())", charge)
		return err
	})
	return r, err
}

// Booking is a charge that took money, as the books have it.
type Booking struct {
	Charge, Order, Account string
	Cents, Refunded        int64
}

// Bookings returns all charges that took money.
func (p *Provider) Bookings(ctx context.Context) ([]Booking, error) {
	rows, err := p.pool.Query(ctx, "SELECT charge, order_id, account, cents, refunded FROM payment_provider.charges WHERE outcome = $1 ORDER BY charge", taken)
	if err != nil {
		return nil, fmt.Errorf("provider: bookings: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Booking])
}
