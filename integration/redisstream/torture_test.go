package redisstream

import (
	"context"
	"net"
	"os/exec"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/daybook-go/daybook/integration/brokertest"
)

var clients = brokertest.Clients{
	Publisher:  NewPublisher,
	Subscriber: func(address, _ string) (message.Subscriber, error) { return NewSubscriber(address) },
	Witness:    func(address string) (message.Subscriber, error) { return NewDurable(address, "witness") },
	Classify:   Classify,
}

func TestMain(m *testing.M) { brokertest.Main(m, clients) }

// serve starts a server that writes each command to the disk before it answers.
func serve(t *testing.T, settings ...string) brokertest.Server {
	t.Helper()
	program := brokertest.Installed(t, "redis-server", "apt-get install redis-server")
	folder, address := t.TempDir(), brokertest.FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"--bind", "127.0.0.1", "--port", port, "--dir", folder, "--save", "", "--appendonly", "yes", "--appendfsync", "always",
	}, settings...)
	return brokertest.ServeCommand(t, folder, address, func() *exec.Cmd { return exec.Command(program, args...) },
		func(ctx context.Context, address string) error {
			client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1})
			defer client.Close()
			return client.Ping(ctx).Err()
		})
}

func TestTorture(t *testing.T) {
	brokertest.Torture(t, clients, serve(t))
}
