package kafka

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/integration/brokertest"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "plain"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "10000"}))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	p, err := NewPublisher(cluster.ListenAddrs()...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	brokertest.Taken(t, p, "plain", brokertest.Message(5000))
	brokertest.Refused(t, p, "plain", brokertest.Message(20_000), sarama.ErrMessageSizeTooLarge.Error(), Classify, eventstore.Permanent)
	brokertest.Refused(t, p, "plain", brokertest.Message(2<<20), "MaxMessageBytes", Classify, eventstore.Permanent)
	brokertest.Refused(t, p, "nobody", brokertest.Message(10), sarama.ErrUnknownTopicOrPartition.Error(), Classify, eventstore.Permanent)
	brokertest.Taken(t, p, "plain", brokertest.Message(10))
	cluster.Close()
	brokertest.Refused(t, p, "plain", brokertest.Message(10), "", Classify, eventstore.Environment)
}
