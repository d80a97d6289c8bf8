package jetstream

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/internal/testscale"
)

// Subscriptions end at any moment while messages arrive, as those of runners do.
func TestSubscriberEndsUnderLoad(t *testing.T) {
	t.Parallel()
	b, err := Open(t.Context(), t.TempDir(), "busy")
	if err != nil {
		t.Fatal(err)
	}
	var publishing sync.WaitGroup
	publish, stop := context.WithCancel(t.Context())
	publishing.Go(func() {
		for i := 0; publish.Err() == nil; i++ {
			if err := b.Publisher.Publish("busy", message.NewMessage(fmt.Sprint("m", i), []byte("x"))); err != nil {
				t.Errorf("publish: %v", err)
				return
			}
		}
	})
	defer func() {
		stop()
		publishing.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	for round := range testscale.N(2000) {
		s, err := b.Subscriber()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		messages, err := s.Subscribe(ctx, "busy")
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + round%5 {
			m := <-messages
			if m == nil {
				t.Fatal("the subscription ended by itself")
			}
			m.Ack()
		}
		cancel()
		for m := range messages { // ends
			m.Nack()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
