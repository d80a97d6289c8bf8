package provider

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// SignatureHeader is the header with the signature of a webhook's body.
const SignatureHeader = "Webhook-Signature"

const (
	// lookEvery is how often is looked for webhooks that are due.
	lookEvery = 100 * time.Millisecond
	// atOnce is how many are sent at the same time.
	atOnce = 16
	// webhookPatience is how long the receiver may take.
	webhookPatience = 10 * time.Second
)

// Webhook tells that money was taken.
type Webhook struct {
	// ID is that of the webhook; copies have the same.
	ID int64 `json:"id"`
	// Charge is the key under which the charge was asked for.
	Charge  string `json:"charge"`
	Order   string `json:"order"`
	Receipt string `json:"receipt"`
	Cents   int64  `json:"cents"`
}

// Sign returns the signature of a webhook's body.
func Sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// Verify reports whether a webhook is from whoever knows the secret.
func Verify(secret string, body []byte, signature string) bool {
	return hmac.Equal([]byte(Sign(secret, body)), []byte(signature))
}

// Run sends webhooks until ctx ends; then it returns nil. Its only other errors are those of the database.
func (p *Provider) Run(ctx context.Context) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		if err := p.deliverDue(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("provider: webhooks: %w", err)
		}
		select {
		case <-p.wake:
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *Provider) deliverDue(ctx context.Context) error {
	for {
		rows, err := p.pool.Query(ctx, `SELECT webhook FROM payment_provider.webhooks
			WHERE copies > 0 AND due_at <= clock_timestamp() ORDER BY due_at LIMIT 200`)
		if err != nil {
			return err
		}
		due, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(due) == 0 {
			return err
		}
		var g errgroup.Group
		g.SetLimit(atOnce)
		for _, webhook := range due {
			g.Go(func() error { p.deliver(ctx, webhook); return nil })
		}
		_ = g.Wait() // what was not taken is due again
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// deliver sends a webhook once, and notes whether it was taken.
func (p *Provider) deliver(ctx context.Context, webhook int64) {
	err := p.send(ctx, webhook)
	if ctx.Err() != nil {
		return // it is due again
	}
	note := "UPDATE payment_provider.webhooks SET copies = copies - 1, tries = 0 WHERE webhook = $1 AND copies > 0"
	if err != nil {
		p.cfg.Logger.Warn("webhook not taken", "webhook", webhook, "error", err)
		note = `UPDATE payment_provider.webhooks SET tries = tries + 1, due_at = clock_timestamp() + least(power(2, tries) * interval '50 ms', interval '5 s')
			WHERE webhook = $1`
	}
	if _, err := p.pool.Exec(ctx, note, webhook); err != nil {
		p.cfg.Logger.Warn("webhook not noted", "webhook", webhook, "error", err) // it is sent again
	}
}

func (p *Provider) send(ctx context.Context, webhook int64) error {
	w := Webhook{ID: webhook}
	if err := p.pool.QueryRow(ctx, `SELECT charge, order_id, cents FROM payment_provider.webhooks JOIN payment_provider.charges USING (charge)
		WHERE webhook = $1`, webhook).Scan(&w.Charge, &w.Order, &w.Cents); err != nil {
		return err
	}
	w.Receipt = fmt.Sprintf("receipt-%d", webhook)
	body, err := json.Marshal(w)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, webhookPatience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.cfg.Webhook, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(SignatureHeader, Sign(p.cfg.Secret, body))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("it was answered with %d", answer.StatusCode)
	}
	return nil
}

// Untold is how many webhooks are still to be sent.
func (p *Provider) Untold(ctx context.Context) (n int, err error) {
	err = p.pool.QueryRow(ctx, "SELECT count(*) FROM payment_provider.webhooks WHERE copies > 0").Scan(&n)
	return n, err
}
