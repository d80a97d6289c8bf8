package provider

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// KeyHeader is the header with the key of a request.
const KeyHeader = "Idempotency-Key"

// maxHeld is how long an answer is held that never comes, should the client wait for longer.
const maxHeld = 10 * time.Second

// Config of a [Provider]. The zero value works, but for the webhook.
type Config struct {
	// Webhook is the URL to which is sent what was taken.
	Webhook string
	// Secret signs the webhooks; see [Verify].
	Secret string
	// Seed is what chance begins with.
	Seed int64
	// Logger gets a line for each webhook that was not taken. Default: none.
	Logger *slog.Logger
}

// Provider is the service. It is safe for concurrent use, but Run only once at a time.
type Provider struct {
	pool *pgxpool.Pool
	cfg  Config
	wake chan struct{}
}

// Open makes the tables that are missing. pool stays the caller's.
func Open(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Provider, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Provider{pool: pool, cfg: cfg, wake: make(chan struct{}, 1)}
	return p, p.install(ctx)
}

// Charge is what is to be taken from whom. Its names are those of the interface.
type Charge struct {
	Order   string `json:"order"`
	Account string `json:"account"`
	Card    string `json:"card"`
	Cents   int64  `json:"cents"`
}

// refundRequest names a charge by its key.
type refundRequest struct {
	Charge string `json:"charge"`
}

// Refund is what was given back: zero cents when nothing had been taken.
type Refund struct {
	Charge string `json:"charge"`
	Cents  int64  `json:"cents"`
}

// problem is the answer to a request that did not work.
type problem struct {
	Reason string `json:"reason"`
}

// Handler answers POST /charges and POST /refunds. An answer that never comes ends with the client's patience.
func (p *Provider) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", handle(p.answerCharge))
	mux.HandleFunc("POST /refunds", handle(p.answerRefund))
	return mux
}

// handle reads a request, and writes what it is answered with.
func handle[R any](answer func(ctx context.Context, key string, request R) (status int, body any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request R
		key := r.Header.Get(KeyHeader)
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&request); err != nil || key == "" {
			write(w, http.StatusBadRequest, problem{"send JSON, and a key in the header " + KeyHeader})
			return
		}
		status, body, err := answer(r.Context(), key, request)
		if err != nil {
			status, body = http.StatusInternalServerError, problem{"the provider's books are closed; ask again"}
		}
		write(w, status, body)
	}
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}

func (p *Provider) answerCharge(ctx context.Context, key string, c Charge) (int, any, error) {
	if c.Order == "" || c.Cents < 1 {
		return http.StatusBadRequest, problem{"name the order, and at least one cent"}, nil
	}
	booked, err := p.charge(ctx, key, c)
	switch {
	case errors.Is(err, errOther):
		return http.StatusUnprocessableEntity, problem{"the key is that of another request"}, nil
	case err != nil:
		return 0, nil, err
	}
	if booked.first && booked.fresh && booked.outcome == taken {
		p.deliver(ctx, booked.webhook) // once more by Run, if it is not taken
	} else {
		p.notify()
	}
	if booked.held && (booked.fresh || c.Card == CardSilent) && booked.outcome != void {
		hold(ctx)
	}
	switch booked.outcome {
	case declined:
		return http.StatusPaymentRequired, problem{"the card was declined"}, nil
	case busy:
		return http.StatusServiceUnavailable, problem{"not tried: come back under another key"}, nil
	case void:
		return http.StatusConflict, problem{"refunded before it came"}, nil
	}
	return http.StatusAccepted, struct{}{}, nil
}

func hold(ctx context.Context) {
	timer := time.NewTimer(maxHeld)
	defer timer.Stop()
	select {
	case <-ctx.Done(): // the client has gone
	case <-timer.C:
	}
}

func (p *Provider) answerRefund(ctx context.Context, key string, r refundRequest) (int, any, error) {
	if r.Charge == "" {
		return http.StatusBadRequest, problem{"name the charge by its key"}, nil
	}
	refund, err := p.refund(ctx, key, r.Charge)
	switch {
	case errors.Is(err, errOther):
		return http.StatusUnprocessableEntity, problem{"the key is that of another request"}, nil
	case err != nil:
		return 0, nil, err
	}
	p.notify()
	return http.StatusOK, refund, nil
}

func (p *Provider) notify() {
	select {
	case p.wake <- struct{}{}:
	default: // it will look anyway
	}
}
