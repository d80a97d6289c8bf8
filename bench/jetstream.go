package main

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	wnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// jetStream is a JetStream in this process, which publishers reach after a delay in each direction.
type jetStream struct {
	server *server.Server
	door   net.Listener
	delay  time.Duration
	dir    string
	wires  sync.WaitGroup
}

func startJetStream(delay time.Duration) (*jetStream, error) {
	dir, err := os.MkdirTemp("", "daybook-bench-nats-")
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.Start()
	b := &jetStream{server: s, delay: delay, dir: dir}
	if !s.ReadyForConnections(10 * time.Second) {
		b.close()
		return nil, errors.New("JetStream does not start")
	}
	if b.door, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		b.close()
		return nil, err
	}
	b.wires.Go(b.accept)
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		b.close()
		return nil, err
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err == nil {
		_, err = js.AddStream(&nats.StreamConfig{Name: topic, Subjects: []string{topic}, Storage: nats.MemoryStorage, MaxMsgs: 100_000})
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *jetStream) close() {
	if b.door != nil {
		_ = b.door.Close() // nobody comes any more
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
	b.wires.Wait()
	_ = os.RemoveAll(b.dir)
}

// publisher waits for the acknowledgement of each message.
func (b *jetStream) publisher() (message.Publisher, error) {
	return wnats.NewPublisher(wnats.PublisherConfig{URL: "nats://" + b.door.Addr().String(), Marshaler: &wnats.NATSMarshaler{}}, nil)
}

// direct is a publisher without the delay.
func (b *jetStream) direct() (message.Publisher, error) {
	return wnats.NewPublisher(wnats.PublisherConfig{URL: b.server.ClientURL(), Marshaler: &wnats.NATSMarshaler{}}, nil)
}

func (b *jetStream) accept() {
	for {
		near, err := b.door.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", b.server.Addr().String())
		if err != nil {
			_ = near.Close()
			continue
		}
		b.wires.Go(func() { b.wire(near, far) })
		b.wires.Go(func() { b.wire(far, near) })
	}
}

// packet is what came at once, and when it is due at the other end.
type packet struct {
	data []byte
	due  time.Time
}

// wire carries bytes with a delay and in their order, as many as come.
func (b *jetStream) wire(from, to net.Conn) {
	defer from.Close()
	packets := make(chan packet, 10_000)
	b.wires.Go(func() {
		defer to.Close()
		for p := range packets {
			<-time.After(time.Until(p.due)) // the distance
			if _, err := to.Write(p.data); err != nil {
				for range packets { // until the other side notices
				}
				return
			}
		}
	})
	defer close(packets)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			packets <- packet{append([]byte(nil), buffer[:n]...), time.Now().Add(b.delay)}
		}
		if err != nil {
			return
		}
	}
}
