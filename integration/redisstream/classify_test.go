package redisstream

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/redis/go-redis/v9"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/integration/brokertest"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	s := serve(t, "--proto-max-bulk-len", "1mb")
	client := redis.NewClient(&redis.Options{Addr: s.Address()})
	defer client.Close()
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
	brokertest.Refused(t, p, "plain", brokertest.Message(MaxMessage), "are allowed", Classify, eventstore.Permanent)
	if err := client.Set(t.Context(), "other", "no stream", 0).Err(); err != nil {
		t.Fatal(err)
	}
	brokertest.Refused(t, p, "other", brokertest.Message(10), "WRONGTYPE", Classify, eventstore.Permanent)

	// Without Limit: the server closes the connection, as if it were away.
	bare, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, nil)
	if err != nil {
		t.Fatal(err)
	}
	brokertest.Refused(t, bare, "plain", brokertest.Message(8<<20), "", Classify, eventstore.Environment)

	if err := client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	brokertest.Refused(t, p, "plain", brokertest.Message(10), "OOM", Classify, eventstore.Environment)
	s.(brokertest.Killer).Kill()
	brokertest.Refused(t, p, "plain", brokertest.Message(10), "", Classify, eventstore.Environment)
}
