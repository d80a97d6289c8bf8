package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
)

// The crash tests run this test binary again as a process of its own, which runs a relay and can be killed or stopped at
// a named place. Its broker is its standard output.
const (
	relayChildURL  = "DAYBOOK_OUTBOX_TEST_URL"
	relayChildAt   = "DAYBOOK_OUTBOX_TEST_AT"   // "place:n:signal": send yourself a signal at the n-th visit of the place
	relayChildOpts = "DAYBOOK_OUTBOX_TEST_OPTS" // lease and batch size, and if there is a third word, the payload that is refused
)

// atBroker is the place within Publish, before the broker has the message.
const atBroker = "broker"

// wireMessage is a line of the child: a message that the broker has.
type wireMessage struct {
	Topic, UUID string
	Payload     []byte
	Metadata    message.Metadata
}

// wireBroker writes each message in one piece, so that a process that is killed leaves whole lines.
type wireBroker struct {
	reached func(place string)
	refuses string // a payload
}

func (b wireBroker) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if m.Metadata[HeaderKind] != string(KindHead) { // heads go in lanes of their own, and would be counted by chance
			b.reached(atBroker)
		}
		if b.refuses != "" && string(m.Payload) == b.refuses {
			return errTooLarge
		}
		line, err := json.Marshal(wireMessage{topic, m.UUID, m.Payload, m.Metadata})
		if err != nil {
			return err
		}
		if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

func (wireBroker) Close() error { return nil }

func relayChild() error {
	ctx := context.Background()
	pool, err := livetest.Pool(ctx, os.Getenv(relayChildURL), 4)
	if err != nil {
		return err
	}
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		return err
	}
	run := Config{Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)), Classify: permanent}
	var refuses string
	if run.Lease, run.BatchSize, refuses, err = livetest.LeaseAndBatch(os.Getenv(relayChildOpts)); err != nil {
		return err
	}
	reached := livetest.Reaching(os.Getenv(relayChildAt))
	run.probe = reached
	r, err := NewRelay(pool, store.Outbox(), wireBroker{reached, refuses}, run)
	if err != nil {
		return err
	}
	fmt.Println("running")
	return r.Run(ctx)
}

// spawnRelay starts a child whose messages go to b.
func (w *relayWorld) spawnRelay(t *testing.T, b *tape, at, opts string) *livetest.Process {
	t.Helper()
	return livetest.Spawn(t, livetest.Child{
		Env: []string{relayChildURL + "=" + w.pool.Config().ConnString(), relayChildAt + "=" + at, relayChildOpts + "=" + opts},
		Takes: func(line string) bool {
			if !strings.HasPrefix(line, "{") {
				return false
			}
			var m wireMessage
			err := json.Unmarshal([]byte(line), &m)
			if err == nil {
				msg := message.NewMessage(m.UUID, m.Payload)
				msg.Metadata = m.Metadata
				err = b.Publish(m.Topic, msg)
			}
			if err != nil {
				t.Errorf("a message of the child: %v: %s", err, line)
			}
			return true
		},
	})
}
