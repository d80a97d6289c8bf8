package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// startPatience bounds the start of a server.
const startPatience = 30 * time.Second

// Server is a NATS server with JetStream in this process. It is safe for concurrent use.
type Server struct{ inner *server.Server }

// Start starts a server in this process, which keeps its streams in a folder and listens on 127.0.0.1; the port 0 is any
// free one. With syncAlways each message is on the disk before it is confirmed, as it must be where a single server is
// all there is; without, the system may write it up to two minutes later, which only the loss of the machine shows.
func Start(folder string, port int, syncAlways bool) (*Server, error) {
	return start(&server.Options{Port: anyPort(port), StoreDir: folder, SyncAlways: syncAlways})
}

// start adds what all servers have. Signals are the program's.
func start(opts *server.Options) (*Server, error) {
	opts.Host, opts.JetStream, opts.NoSigs, opts.NoLog = "127.0.0.1", true, true, true
	inner, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("jetstream: start: %w", err)
	}
	inner.Start()
	if !inner.ReadyForConnections(startPatience) {
		inner.Shutdown()
		return nil, fmt.Errorf("jetstream: start: no answer within %v", startPatience)
	}
	return &Server{inner}, nil
}

func anyPort(port int) int {
	if port == 0 {
		return server.RANDOM_PORT
	}
	return port
}

// URL is what clients connect to.
func (s *Server) URL() string { return s.inner.ClientURL() }

// Close stops the server and waits for its end. Its folder stays.
func (s *Server) Close() {
	s.inner.Shutdown()
	s.inner.WaitForShutdown()
}

// serve runs a server at an address until the process is killed.
func serve(address, folder string) error {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	s, err := Start(folder, port, false)
	if err != nil {
		return err
	}
	s.inner.WaitForShutdown()
	return errors.New("jetstream: the server has ended")
}

// Broker is a server in this process, for measurements and for tests that need a broker rather than a broken one.
type Broker struct {
	*Server
	// Publisher is a relay's.
	Publisher message.Publisher
}

// Open starts a server in this process, with a stream for each topic, and connects a publisher. Close it when relay and
// runners have ended.
func Open(ctx context.Context, folder string, topics ...string) (_ *Broker, err error) {
	s, err := Start(folder, 0, false)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for _, topic := range topics {
		if err := MakeStream(ctx, s.URL(), topic, 1); err != nil {
			return nil, err
		}
	}
	publisher, err := NewPublisher(s.URL())
	if err != nil {
		return nil, err
	}
	return &Broker{s, publisher}, nil
}

// Subscriber connects a follower that gets what is published from now on. The caller closes it.
func (b *Broker) Subscriber() (*Subscriber, error) { return NewSubscriber(b.URL()) }

// Close closes the publisher, which must not publish any more, and the server.
func (b *Broker) Close() error {
	err := b.Publisher.Close()
	b.Server.Close()
	return err
}

// ready asks a server whether JetStream answers.
func ready(ctx context.Context, url string) error {
	conn, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		return err
	}
	_, err = js.AccountInfo(nats.Context(ctx))
	return err
}
