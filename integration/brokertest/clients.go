package brokertest

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/eventstore"
)

// Topic is what the test publishes on.
const Topic = "counted"

// Clients connect to a broker at an address. They are called in several processes; a function whose broker is away
// returns an error, and is called again when something is to be published or received. All but Publisher and Subscriber may be left out.
type Clients struct {
	// Publisher is a relay's. Publish returns when the broker has confirmed.
	Publisher func(address string) (message.Publisher, error)
	// Subscriber is a follower's, which wants what is published from now on. The name is that of one runner in one
	// process, and the same when the process was killed and started again.
	Subscriber func(address, name string) (message.Subscriber, error)
	// Witness gets every message from before the first was published, whatever happens to the broker.
	Witness func(address string) (message.Subscriber, error)
	// Classify is given to relays.
	Classify eventstore.Classifier
	// Serve runs a broker that is written in Go, until it is killed, with its data in a folder; see [Serve].
	Serve func(address, folder string) error
	// InProcess: relays and consumers run in the test's process, since the broker is there. They end when their context
	// does, instead of by SIGKILL.
	InProcess bool
}

// Server is a broker that can be restarted.
type Server interface {
	// Address is what Clients are given.
	Address() string
	// Restart ends the broker without warning, and starts it again with its data.
	Restart() error
}

// Killer is a server that can be ended for good.
type Killer interface{ Kill() }

// Connect calls open until it succeeds, or ctx ends.
func Connect[C any](ctx context.Context, open func() (C, error)) (C, error) {
	for {
		c, err := open()
		if err == nil {
			return c, nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return c, fmt.Errorf("connect: %w: %w", ctx.Err(), err)
		}
	}
}

// pause returns false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
