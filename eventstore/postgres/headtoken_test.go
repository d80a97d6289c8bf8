package postgres_test

import (
	"testing"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

func TestHeadTokenStandsForEverythingCommitted(t *testing.T) {
	t.Parallel()
	store, err := postgres.New(t.Context(), postgrestest.New(t), postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	token, err := store.HeadToken(t.Context())
	if err != nil || !token.IsZero() {
		t.Errorf("token of an empty log: %v (%v), want the zero token", token, err)
	}
	written := map[int]eventstore.Position{}
	for _, id := range []string{"a", "b", "c"} {
		r, err := store.Append(t.Context(), eventstore.To(eventstore.NewStreamID("account", id), eventstore.NoStream, eventstore.EventData{Type: "account.opened"}))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range r.Token.Marks() {
			written[m.Partition] = m.Position
		}
	}
	if token, err = store.HeadToken(t.Context()); err != nil {
		t.Fatal(err)
	}
	if token.Epoch() != store.Epoch() || len(token.Marks()) != store.Partitions() {
		t.Fatalf("token of epoch %s with %d partitions, want %s and %d", token.Epoch(), len(token.Marks()), store.Epoch(), store.Partitions())
	}
	for _, m := range token.Marks() {
		if m.Position.Before(written[m.Partition]) {
			t.Errorf("partition %d: the token asks for %s, which is before %s", m.Partition, m.Position, written[m.Partition])
		}
	}
}
