package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/examples/checkout/checkout"
	"github.com/daybook-go/daybook/examples/checkout/payment"
	"github.com/daybook-go/daybook/internal/flow"
)

// orders writes a file of orders.
func orders(t *testing.T, rows ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "orders.csv")
	text := "account,sku,quantity,cents,card,country\n" + strings.Join(rows, "\n") + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// An order that is stuck is counted, apart from those that ended, and the program fails and says where it stands.
func TestStuckIsCounted(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	// Whichever attempt takes the money of the second order, a cent of it was given back before, and so the refund is refused.
	store, err := postgres.New(t.Context(), s.pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	payments := aggregate.NewRepository(store, payment.Type)
	for attempt := range 3 {
		charge := flow.CommandID(flow.Ref{Saga: checkout.Definition.Name(), Key: "1-0002", Run: 1}, "take-payment", flow.Do, attempt+1)
		if _, err := payments.Handle(t.Context(), "1-0002", payment.GiveBack{Charge: charge.String(), Cents: 1}.Decide); err != nil {
			t.Fatal(err)
		}
	}
	r := s.run(t, orders(t, "ann,cup,1,895,visa,DE", "bob,cup,2,1790,visa,AQ"))
	want := "confirmed                                     1        1           8.95\n" +
		"stuck                                         1        2          17.90\n"
	if r.code != 1 || !strings.HasSuffix(r.out, want) {
		t.Errorf("it ended with %d, and printed\n%s", r.code, r.out)
	}
	for _, says := range []string{"not all has ended: 1 order under way, 1 of them being undone, 1 stuck", `checkout "1-0002"`} {
		if !strings.Contains(r.notes, says) {
			t.Errorf("it does not say %q, but\n%s", says, r.notes)
		}
	}
}
