package outbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// noTx is a transaction that is never used: bad input is refused before.
type noTx struct{ pgx.Tx }

// A message that is refused is spoken of as a message, with the field, its value and the remedy.
func TestEnqueueErrorsSpeakOfMessages(t *testing.T) {
	t.Parallel()
	good := Message{Topic: "mail", Key: "k", Type: "mail.send"}
	long, untyped, large := good, good, good
	long.Topic, untyped.Type, large.Data = "a\tb", "", make([]byte, 64<<20+1)
	for _, c := range []struct {
		tx       pgx.Tx
		schema   Schema
		messages []Message
		want     string
	}{
		{noTx{}, "", []Message{good, untyped}, `outbox: enqueue: messages[1].Type "" is empty: give the wire name of the message`},
		{noTx{}, "", []Message{long}, `outbox: enqueue: messages[0].Topic "a\tb" contains a control character: remove it`},
		{noTx{}, "", []Message{large}, `outbox: enqueue: messages[0].Data "67108865 bytes" is larger than 64 MiB: store the bytes elsewhere and put their address into the message`},
		{noTx{}, "", make([]Message, 10_001), `outbox: enqueue: messages "10001" are more than 10000: call Enqueue several times`},
		{nil, "", []Message{good}, `outbox: enqueue: tx "nil" is no transaction: pass the transaction that the messages belong to`},
		{noTx{}, "a\x00b", []Message{good}, `outbox: enqueue: Schema "a\x00b" contains a zero byte: name the schema of the store`},
	} {
		err := c.schema.Enqueue(t.Context(), c.tx, c.messages...)
		if err == nil || err.Error() != c.want || !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
	bad := eventstore.WithMetadata(t.Context(), eventstore.Metadata{Tenant: "\xff"})
	if err := Enqueue(bad, noTx{}, good); err == nil || !strings.HasPrefix(err.Error(), `outbox: enqueue: context.Metadata.Tenant "\xff" is not`) {
		t.Errorf("%v", err)
	}
}
