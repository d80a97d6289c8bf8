package shop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/examples/checkout/order"
	"github.com/daybook-go/daybook/examples/checkout/payment"
	"github.com/daybook-go/daybook/examples/checkout/provider"
	"github.com/daybook-go/daybook/examples/checkout/shipping"
	"github.com/daybook-go/daybook/examples/checkout/shop"
	"github.com/daybook-go/daybook/examples/checkout/stock"
)

const secret = "s3cret"

// world is a shop on a store in memory, and a provider that answers as it is told.
type world struct {
	*shop.Shop
	bus    *bus.Bus
	store  *memory.Store
	status int
	body   string

	mu   sync.Mutex
	keys []string // of the requests that came
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{store: memory.New(memory.Config{}), status: http.StatusAccepted, body: "{}"}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.keys = append(w.keys, r.URL.Path+" "+r.Header.Get(provider.KeyHeader))
		rw.WriteHeader(w.status)
		_, _ = io.WriteString(rw, w.body)
	}))
	t.Cleanup(server.Close)
	client := provider.NewClient(server.URL, 10*time.Second)
	t.Cleanup(client.Close)
	w.Shop = shop.New(w.store, w.store.Snapshots(), client)
	w.bus = w.Bus(slog.New(slog.DiscardHandler))
	return w
}

// events are those of a stream.
func (w *world) events(t *testing.T, stream eventstore.StreamID) (types []string, last eventstore.RecordedEvent) {
	t.Helper()
	for e, err := range w.store.ReadStream(t.Context(), stream, eventstore.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		types, last = append(types, e.Type), e
	}
	return types, last
}

func (w *world) payments(t *testing.T) []string {
	t.Helper()
	types, _ := w.events(t, payment.Type.Stream("7"))
	return types
}

var take = payment.Take{Order: "7", Account: "ann", Card: "visa", Cents: 500}

// A command that is carried out again asks under the same key, and is noted once.
func TestTakeUnderItsOwnID(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		http.StatusAccepted: "payment.requested", http.StatusPaymentRequired: "payment.declined", http.StatusServiceUnavailable: "payment.postponed",
	} {
		w := newWorld(t)
		w.status = status
		id := uuid.New()
		for range 2 {
			if _, err := w.bus.Send(t.Context(), take, bus.WithID(id)); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.payments(t); !slices.Equal(got, []string{want}) {
			t.Errorf("answered with %d it is noted as %q", status, got)
		}
		for _, key := range w.keys {
			if key != "/charges "+id.String() {
				t.Errorf("asked for %q", key)
			}
		}
	}
}

// That there is no answer is no outcome: the same command may be carried out again.
func TestNoAnswerIsTransient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.status = http.StatusInternalServerError
	id := uuid.New()
	if _, err := w.bus.Send(t.Context(), take, bus.WithID(id)); !aggregate.IsTransient(err) {
		t.Fatalf("the error is %v", err)
	}
	w.status = http.StatusAccepted
	if _, err := w.bus.Send(t.Context(), take, bus.WithID(id)); err != nil || len(w.payments(t)) != 1 {
		t.Errorf("afterwards: %v, %q", err, w.payments(t))
	}
}

func TestChargeThatWasRefundedBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.status = http.StatusConflict
	reply, err := w.bus.Send(t.Context(), take)
	if !errors.Is(err, payment.ErrVoid) || !reply.Refused || len(w.payments(t)) != 0 {
		t.Errorf("%+v, %v, %q", reply, err, w.payments(t))
	}
}

// Several undos of one command ask under one key.
func TestRefundUnderWhatItUndoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.status, w.body = http.StatusOK, `{"cents":500}`
	undone := uuid.New()
	for range 2 {
		if _, err := w.bus.Send(t.Context(), payment.Refund{Order: "7"}, bus.Undoes(undone)); err != nil {
			t.Fatal(err)
		}
	}
	if want := "/refunds undo:" + undone.String(); !slices.Equal(w.keys, []string{want, want}) {
		t.Errorf("asked for %q", w.keys)
	}
	if got := w.payments(t); !slices.Equal(got, []string{"payment.refunded"}) {
		t.Errorf("noted: %q", got)
	}
	w.body = `{"cents":0}`
	if _, err := w.bus.Send(t.Context(), payment.Refund{Order: "8"}, bus.Undoes(uuid.New())); err != nil {
		t.Errorf("nothing to refund: %v", err)
	}
}

func (w *world) hook(hook provider.Webhook, sign string) int {
	body, err := json.Marshal(hook)
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest(http.MethodPost, shop.WebhookPath, bytes.NewReader(body))
	r.Header.Set(provider.SignatureHeader, provider.Sign(sign, body))
	rw := httptest.NewRecorder()
	w.Webhooks(secret).ServeHTTP(rw, r)
	return rw.Code
}

// A webhook counts once, and says by its causation which command it answers.
func TestWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hook := provider.Webhook{ID: 1, Charge: uuid.NewString(), Order: "7", Receipt: "r1", Cents: 500}
	if code := w.hook(hook, "another secret"); code != http.StatusUnauthorized || len(w.payments(t)) != 0 {
		t.Errorf("from a stranger: %d", code)
	}
	for range 2 {
		if code := w.hook(hook, secret); code != http.StatusNoContent {
			t.Errorf("it is answered with %d", code)
		}
	}
	types, last := w.events(t, payment.Type.Stream("7"))
	if !slices.Equal(types, []string{"payment.taken"}) || last.Metadata.CausationID != hook.Charge {
		t.Errorf("noted: %q, caused by %q", types, last.Metadata.CausationID)
	}
	hook.Cents++
	if code := w.hook(hook, secret); code != http.StatusUnprocessableEntity {
		t.Errorf("another amount is answered with %d", code)
	}
}

// The parcel and the order change together, or not at all.
func TestHandOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"7", "8", "9"} {
		if _, err := w.Orders.Handle(t.Context(), id, order.Place{Account: "ann", SKU: "cup", Quantity: 1, Cents: 500}.Decide); err != nil {
			t.Fatal(err)
		}
	}
	send := func(id, country string) error {
		_, err := w.bus.Send(t.Context(), shipping.HandOver{Order: id, SKU: "cup", Quantity: 1, Country: country})
		return err
	}
	if err := send("7", "DE"); err != nil {
		t.Fatal(err)
	}
	if err := send("8", shipping.NoCarrier); err != nil {
		t.Fatal(err)
	}
	if _, err := w.bus.Send(t.Context(), order.Cancel{Order: "9", Reason: "not paid"}); err != nil {
		t.Fatal(err)
	}
	if err := send("9", "DE"); !errors.Is(err, order.ErrCancelled) {
		t.Errorf("a cancelled order: %v", err)
	}
	for id, want := range map[string][]string{"7": {"order.placed", "order.sent"}, "8": {"order.placed"}, "9": {"order.placed", "order.cancelled"}} {
		if got, _ := w.events(t, order.Type.Stream(id)); !slices.Equal(got, want) {
			t.Errorf("order %s: %q, want %q", id, got, want)
		}
	}
	for id, want := range map[string][]string{"7": {"shipping.handed-over"}, "8": {"shipping.refused"}, "9": nil} {
		if got, _ := w.events(t, shipping.Type.Stream(id)); !slices.Equal(got, want) {
			t.Errorf("parcel %s: %q, want %q", id, got, want)
		}
	}
}

// Everything that the sagas send has a handler.
func TestBusKnowsAllCommands(t *testing.T) {
	t.Parallel()
	want := []string{
		"order.cancel", "order.confirm", "order.invoice", "order.tell-customer", "payment.refund", "payment.take",
		"shipping.hand-over", "stock.release", "stock.reserve", "stock.take-out",
	}
	if got := newWorld(t).bus.Types(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestStockByCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.Items.Handle(t.Context(), "cup", stock.Receive{Quantity: 3}.Decide); err != nil {
		t.Fatal(err)
	}
	for _, c := range []any{
		stock.Reserve{SKU: "cup", Order: "7", Quantity: 2}, stock.Reserve{SKU: "cup", Order: "8", Quantity: 2},
		stock.Reserve{SKU: "cup", Order: "9", Quantity: 1}, stock.Release{SKU: "cup", Order: "9"}, stock.TakeOut{SKU: "cup", Order: "7"},
	} {
		if _, err := w.bus.Send(t.Context(), c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	want := []string{"stock.received", "stock.reserved", "stock.rejected", "stock.reserved", "stock.released", "stock.shipped"}
	if got, _ := w.events(t, stock.Type.Stream("cup")); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
