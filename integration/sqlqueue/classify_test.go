package sqlqueue

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/integration/brokertest"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, topic := range []string{"plain", "checked"} {
		if err := MakeTable(s.Address(), topic); err != nil {
			t.Fatal(err)
		}
	}
	pool, err := pgxpool.New(t.Context(), s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), `ALTER TABLE watermill_checked ADD CHECK (octet_length(payload) < 1000)`); err != nil {
		t.Fatal(err)
	}
	p, err := NewPublisher(s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	brokertest.Taken(t, p, "plain", brokertest.Message(5000))
	brokertest.Refused(t, p, "checked", brokertest.Message(5000), "23514", Classify, eventstore.Permanent)
	long := brokertest.Message(10)
	long.UUID = strings.Repeat("x", 100)
	brokertest.Refused(t, p, "plain", long, "22001", Classify, eventstore.Permanent)
	brokertest.Refused(t, p, "nobody", brokertest.Message(10), "42P01", Classify, eventstore.Permanent)
	brokertest.Refused(t, p, "two words", brokertest.Message(10), "topic name", Classify, eventstore.Permanent)

	if _, err := pool.Exec(t.Context(), `ALTER DATABASE postgres SET default_transaction_read_only = on`); err != nil {
		t.Fatal(err)
	}
	later, err := NewPublisher(s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := later.Close(); err != nil {
			t.Error(err)
		}
	}()
	brokertest.Refused(t, later, "plain", brokertest.Message(10), "25006", Classify, eventstore.Environment)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	brokertest.Refused(t, p, "plain", brokertest.Message(10), "", Classify, eventstore.Environment) // its connection breaks
	brokertest.Refused(t, p, "plain", brokertest.Message(10), "", Classify, eventstore.Environment) // and there is no new one
}
