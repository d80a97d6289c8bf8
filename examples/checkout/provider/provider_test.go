package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/examples/checkout/provider"
)

const (
	secret = "s3cret"
	// patience is that of a client that is to get an answer.
	patience = 30 * time.Second
)

// world is a provider and a shop that notes its webhooks.
type world struct {
	*provider.Provider
	client *provider.Client
	url    string

	mu   sync.Mutex
	seen map[string][]provider.Webhook // by charge
	grew chan struct{}
	away bool // the shop takes no webhook
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{seen: map[string][]provider.Webhook{}, grew: make(chan struct{}, 1000)}
	shop := httptest.NewServer(http.HandlerFunc(w.webhook))
	t.Cleanup(shop.Close)
	var err error
	w.Provider, err = provider.Open(t.Context(), postgrestest.Empty(t), provider.Config{Webhook: shop.URL, Secret: secret, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(w.Handler())
	t.Cleanup(server.Close)
	w.url, w.client = server.URL, provider.NewClient(server.URL, patience)
	t.Cleanup(w.client.Close)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) webhook(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var hook provider.Webhook
	if err != nil || !provider.Verify(secret, body, r.Header.Get(provider.SignatureHeader)) || json.Unmarshal(body, &hook) != nil {
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		rw.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.seen[hook.Charge] = append(w.seen[hook.Charge], hook)
	w.grew <- struct{}{}
}

// told waits for so many webhooks of a charge, and for the provider to have no more of any.
func (w *world) told(t *testing.T, charge string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		left, err := w.Untold(ctx)
		w.mu.Lock()
		seen := w.seen[charge]
		w.mu.Unlock()
		if err != nil {
			t.Fatalf("%d of %d webhooks came: %v", len(seen), n, err)
		}
		if left == 0 {
			if len(seen) != n {
				t.Fatalf("webhooks of %s: %+v, want %d", charge, seen, n)
			}
			return
		}
		select {
		case <-look.C:
		case <-w.grew:
		}
	}
}

// order is the first whose chance is between two numbers.
func order(t *testing.T, from, to uint64) string {
	t.Helper()
	for i := range 10_000 {
		name := fmt.Sprint("order-", i)
		if c := provider.ChanceOf(name, 1); c >= from && c < to {
			return name
		}
	}
	t.Fatal("no order has such luck")
	return ""
}

func charge(order, card string) provider.Charge {
	return provider.Charge{Order: order, Account: "ann", Card: card, Cents: 500}
}

// books checks what the provider holds, before and after refunds.
func (w *world) books(t *testing.T, taken, refunded int64) {
	t.Helper()
	bookings, err := w.Bookings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bookings {
		taken -= b.Cents
		refunded -= b.Refunded
	}
	if taken != 0 || refunded != 0 {
		t.Errorf("the books are %d and %d cents short: %+v", taken, refunded, bookings)
	}
}

func TestChargedOncePerKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := order(t, 60, 100)
	for range 3 {
		if answer, err := w.client.Charge(t.Context(), "k1", charge(name, "visa")); answer != provider.Pending || err != nil {
			t.Fatalf("%q, %v", answer, err)
		}
	}
	w.told(t, "k1", 1)
	if hook := w.seen["k1"][0]; hook.Order != name || hook.Cents != 500 || hook.Receipt == "" {
		t.Errorf("the webhook says %+v", hook)
	}
	other := charge(name, "visa")
	other.Cents++
	var status *provider.StatusError
	if _, err := w.client.Charge(t.Context(), "k1", other); !errors.As(err, &status) || status.Status != http.StatusUnprocessableEntity {
		t.Errorf("another charge under the key: %v", err)
	}
	w.books(t, 500, 0)
}

func TestRefundedOncePerCharge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := order(t, 60, 100)
	for _, key := range []string{"k1", "k2"} {
		if _, err := w.client.Charge(t.Context(), key, charge(name, "visa")); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"undo:k1", "undo:k1", "again"} {
		if refund, err := w.client.Refund(t.Context(), key, "k1"); refund != (provider.Refund{Charge: "k1", Cents: 500}) || err != nil {
			t.Errorf("%s: %+v, %v", key, refund, err)
		}
	}
	var status *provider.StatusError
	if _, err := w.client.Refund(t.Context(), "undo:k1", "k2"); !errors.As(err, &status) || status.Status != http.StatusUnprocessableEntity {
		t.Errorf("another refund under the key: %v", err)
	}
	w.books(t, 1000, 500)
}

// A refund that overtakes its charge.
func TestRefundOfAnUnknownCharge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 2 {
		if refund, err := w.client.Refund(t.Context(), "undo:k1", "k1"); refund != (provider.Refund{Charge: "k1"}) || err != nil {
			t.Fatalf("%+v, %v", refund, err)
		}
	}
	for range 2 {
		if _, err := w.client.Charge(t.Context(), "k1", charge(order(t, 60, 100), "visa")); !errors.Is(err, provider.ErrVoid) {
			t.Errorf("the charge that comes later: %v", err)
		}
	}
	w.told(t, "k1", 0)
	w.books(t, 0, 0)
}

func TestDeclinedAndBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rush := charge(order(t, 0, 10), "visa")
	for range 2 {
		if answer, err := w.client.Charge(t.Context(), "d", charge("x", provider.CardDeclined)); answer != provider.Declined || err != nil {
			t.Errorf("a declined card: %q, %v", answer, err)
		}
		if answer, err := w.client.Charge(t.Context(), "b1", rush); answer != provider.Busy || err != nil {
			t.Errorf("in a rush: %q, %v", answer, err)
		}
	}
	if answer, err := w.client.Charge(t.Context(), "b2", rush); answer != provider.Pending || err != nil {
		t.Errorf("under another key: %q, %v", answer, err)
	}
	for _, key := range []string{"d", "b1"} {
		if refund, err := w.client.Refund(t.Context(), "undo:"+key, key); refund.Cents != 0 || err != nil {
			t.Errorf("the refund of %s: %+v, %v", key, refund, err)
		}
	}
	w.told(t, "b2", 2) // as chance has it
	w.books(t, 500, 0)
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to uint64
		copies   int
	}{"twice": {10, 25, 2}, "before the answer": {25, 40, 1}, "late": {40, 50, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if answer, err := w.client.Charge(t.Context(), "k1", charge(order(t, c.from, c.to), "visa")); answer != provider.Pending || err != nil {
				t.Fatalf("%q, %v", answer, err)
			}
			if seen := len(w.grew); c.from == 25 && seen != 1 {
				t.Errorf("%d webhooks came before the answer", seen)
			}
			w.told(t, "k1", c.copies)
		})
	}
}

// A webhook comes again until it is taken.
func TestWebhookNotTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.away = true
	if _, err := w.client.Charge(t.Context(), "k1", charge(order(t, 25, 40), "visa")); err != nil {
		t.Fatal(err)
	}
	if left, err := w.Untold(t.Context()); left != 1 || err != nil {
		t.Errorf("%d webhooks are left: %v", left, err)
	}
	w.mu.Lock()
	w.away = false
	w.mu.Unlock()
	w.told(t, "k1", 1)
}

// Who does not wait for long does not learn what became of the charge. Repeating tells, unless the card is silent for good.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hasty := provider.NewClient(w.url, 50*time.Millisecond)
	t.Cleanup(hasty.Close)
	held := charge(order(t, 50, 52), "visa")
	var status *provider.StatusError
	if _, err := hasty.Charge(t.Context(), "held", held); err == nil || errors.As(err, &status) {
		t.Errorf("at first: %v", err)
	}
	// The first answer is held; a busy machine may not have begun with it.
	if answer, err := w.client.Charge(t.Context(), "held", held); answer != provider.Pending && err == nil {
		t.Errorf("repeated: %q, %v", answer, err)
	}
	w.told(t, "held", 1)

	for i, silent := range []provider.Charge{charge(evenOrder(t, 0), provider.CardSilent), charge(evenOrder(t, 1), provider.CardSilent)} {
		key := fmt.Sprint("silent", i)
		// Until it is in the books for sure.
		_, err := provider.Book(w.Provider, t.Context(), key, silent)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := hasty.Charge(t.Context(), key, silent); err == nil || errors.As(err, &status) {
				t.Errorf("a silent card: %v", err)
			}
		}
		w.told(t, key, 0)
		refund, err := w.client.Refund(t.Context(), "undo:"+key, key)
		if want := int64(500 * i); refund.Cents != want || err != nil {
			t.Errorf("the refund of %s: %+v, %v; want %d cents", key, refund, err, want)
		}
		w.told(t, key, i) // what was taken is told now
	}
	w.books(t, 1000, 500)
}

// evenOrder is an order whose chance is even, or odd.
func evenOrder(t *testing.T, rest uint64) string {
	t.Helper()
	for i := range 1000 {
		if name := fmt.Sprint("silent-", i); provider.ChanceOf(name, 1)%2 == rest {
			return name
		}
	}
	t.Fatal("no order has such luck")
	return ""
}

// Charges and refunds of one key at the same time: what is taken is given back, or nothing is ever taken.
func TestChargeAndRefundAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := order(t, 60, 100)
	var all sync.WaitGroup
	for i := range 20 {
		key := fmt.Sprint("k", i)
		all.Go(func() {
			if _, err := w.client.Charge(t.Context(), key, charge(name, "visa")); err != nil && !errors.Is(err, provider.ErrVoid) {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := w.client.Refund(t.Context(), "undo:"+key, key); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	bookings, err := w.Bookings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bookings {
		if b.Cents != b.Refunded {
			t.Errorf("%+v was not given back", b)
		}
	}
	t.Logf("%d of 20 charges came first", len(bookings))
}

func TestRequestsAreChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var status *provider.StatusError
	for name, err := range map[string]error{
		"no key":    second(w.client.Charge(t.Context(), "", charge("x", "visa"))),
		"no order":  second(w.client.Charge(t.Context(), "k", charge("", "visa"))),
		"no charge": second(w.client.Refund(t.Context(), "k", "")),
	} {
		if !errors.As(err, &status) || status.Status != http.StatusBadRequest || status.Reason == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestSignature(t *testing.T) {
	t.Parallel()
	body := []byte(`{"charge":"k1"}`)
	if s := provider.Sign(secret, body); !provider.Verify(secret, body, s) || provider.Verify("other", body, s) || provider.Verify(secret, body[1:], s) {
		t.Errorf("the signature %s proves nothing", s)
	}
}
