package kafka

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/daybook-go/daybook/integration/brokertest"
)

var clients = brokertest.Clients{
	Publisher:  func(address string) (message.Publisher, error) { return NewPublisher(address) },
	Subscriber: func(address, _ string) (message.Subscriber, error) { return NewSubscriber(address) },
	Witness: func(address string) (message.Subscriber, error) {
		return newSubscriber([]string{address}, sarama.OffsetOldest)
	},
	Classify: Classify,
	Serve:    serve,
}

const partitions = 8

// serve is a fake of one broker, which keeps topics and messages in a folder.
func serve(address, folder string) error {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	_, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(folder), kfake.SyncWrites(), kfake.SeedTopics(partitions, brokertest.Topic))
	if err != nil {
		return err
	}
	select {} // until it is killed
}

func ready(_ context.Context, address string) error {
	client, err := sarama.NewClient([]string{address}, sarama.NewConfig())
	if err != nil {
		return err
	}
	defer client.Close()
	found, err := client.Partitions(brokertest.Topic)
	if err == nil && len(found) != partitions {
		err = fmt.Errorf("%d partitions, want %d", len(found), partitions)
	}
	return err
}

func TestMain(m *testing.M) { brokertest.Main(m, clients) }

func TestTorture(t *testing.T) {
	brokertest.Torture(t, clients, brokertest.Serve(t, ready))
}
