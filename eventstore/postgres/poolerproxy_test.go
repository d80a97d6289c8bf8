package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// pooler is a connection pooler in transaction mode: each transaction of a client runs on the backend that has been idle
// longest, so two transactions of a client hardly ever meet the same one. It follows neither prepared statements nor
// settings, and answers with a process id of its own.
type pooler struct {
	url      string
	listener net.Listener
	idle     chan *pgconn.HijackedConn
	ending   atomic.Bool
	running  sync.WaitGroup
	nextPID  atomic.Uint32

	mu      sync.Mutex
	clients map[uint32]*poolerClient
	open    map[net.Conn]struct{}
}

type poolerClient struct {
	pooler  *pooler
	backend *pgproto3.Backend
	conn    net.Conn

	mu      sync.Mutex
	server  *pgconn.HijackedConn
	syncs   int  // sent to the server, not answered
	pending bool // something was sent after the last Sync
	done    chan struct{}
}

// pooled gives a pool whose connections go through a pooler with n backends.
func pooled(t testing.TB, direct *pgxpool.Pool, n int, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	p := startPooler(t, postgrestest.URL(direct), n)
	cfg := direct.Config()
	host, port := p.address()
	cfg.ConnConfig.Host, cfg.ConnConfig.Port = host, port
	cfg.ConnConfig.Fallbacks = nil
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func startPooler(t testing.TB, url string, n int) *pooler {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pooler{url: url, listener: listener, idle: make(chan *pgconn.HijackedConn, n),
		clients: make(map[uint32]*poolerClient), open: make(map[net.Conn]struct{})}
	p.nextPID.Store(1 << 24)
	t.Cleanup(p.close)
	for range n {
		if err := p.addServer(); err != nil {
			t.Fatal(err)
		}
	}
	p.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.track(conn, true)
			p.running.Go(func() {
				defer p.track(conn, false)
				_ = p.serve(conn) // how a client ends is the client's affair
			})
		}
	})
	return p
}

func (p *pooler) address() (string, uint16) {
	a := p.listener.Addr().(*net.TCPAddr)
	return a.IP.String(), uint16(a.Port)
}

func (p *pooler) track(conn net.Conn, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if open && !p.ending.Load() {
		p.open[conn] = struct{}{}
		return
	}
	delete(p.open, conn)
	_ = conn.Close()
}

func (p *pooler) close() {
	p.ending.Store(true)
	_ = p.listener.Close()
	p.mu.Lock()
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
	for len(p.idle) > 0 {
		_ = (<-p.idle).Conn.Close()
	}
}

func (p *pooler) addServer() error {
	conn, err := pgconn.Connect(context.Background(), p.url)
	if err != nil {
		return err
	}
	server, err := conn.Hijack()
	if err != nil {
		return err
	}
	select {
	case p.idle <- server:
		return nil
	default:
		return errors.Join(errors.New("a backend too many"), server.Conn.Close())
	}
}

func (p *pooler) serve(conn net.Conn) error {
	backend := pgproto3.NewBackend(conn, conn)
	for {
		first, err := backend.ReceiveStartupMessage()
		if err != nil {
			return err
		}
		switch first := first.(type) {
		case *pgproto3.SSLRequest, *pgproto3.GSSEncRequest:
			if _, err := conn.Write([]byte{'N'}); err != nil {
				return err
			}
		case *pgproto3.CancelRequest:
			return p.cancel(first.ProcessID)
		case *pgproto3.StartupMessage:
			return p.session(conn, backend)
		default:
			return fmt.Errorf("startup message %T", first)
		}
	}
}

func (p *pooler) cancel(pid uint32) error {
	p.mu.Lock()
	client := p.clients[pid]
	p.mu.Unlock()
	if client == nil {
		return nil
	}
	client.mu.Lock()
	defer client.mu.Unlock()
	if client.server == nil {
		return nil
	}
	conn, err := net.Dial("tcp", client.server.Conn.RemoteAddr().String())
	if err != nil {
		return err
	}
	request, err := (&pgproto3.CancelRequest{ProcessID: client.server.PID, SecretKey: client.server.SecretKey}).Encode(nil)
	if err == nil {
		_, err = conn.Write(request)
	}
	_, readErr := conn.Read(make([]byte, 1)) // the server closes
	if errors.Is(readErr, io.EOF) {
		readErr = nil
	}
	return errors.Join(err, readErr, conn.Close())
}

func (p *pooler) session(conn net.Conn, backend *pgproto3.Backend) error {
	c := &poolerClient{pooler: p, backend: backend, conn: conn}
	pid := p.nextPID.Add(1)
	p.mu.Lock()
	p.clients[pid] = c
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.clients, pid)
		p.mu.Unlock()
		c.drop()
	}()
	server := <-p.idle
	parameters := server.ParameterStatuses
	p.idle <- server
	backend.Send(&pgproto3.AuthenticationOk{})
	for name, value := range parameters {
		backend.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
	}
	backend.Send(&pgproto3.BackendKeyData{ProcessID: pid, SecretKey: []byte{1, 2, 3, 4}})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if err := backend.Flush(); err != nil {
		return err
	}
	for {
		message, err := backend.Receive()
		if err != nil {
			return err
		}
		if _, ok := message.(*pgproto3.Terminate); ok {
			return nil
		}
		if err := c.forward(message); err != nil {
			return err
		}
	}
}

// forward sends a message to the client's server, taking one if it has none.
func (c *poolerClient) forward(message pgproto3.FrontendMessage) error {
	text, err := message.Encode(nil)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.server == nil {
		c.server = <-c.pooler.idle
		c.done = make(chan struct{})
		server, done := c.server, c.done
		c.pooler.running.Go(func() { c.answer(server, done) })
	}
	switch message.(type) {
	case *pgproto3.Sync, *pgproto3.Query:
		c.syncs++
		c.pending = false
	default:
		c.pending = true
	}
	server := c.server
	c.mu.Unlock()
	_, err = server.Conn.Write(text)
	return err
}

// answer carries what a server says to the client, until the transaction has ended.
func (c *poolerClient) answer(server *pgconn.HijackedConn, done chan struct{}) {
	defer close(done)
	for {
		message, err := server.Frontend.Receive()
		if err != nil {
			_ = c.conn.Close() // the backend is gone, and the client's transaction with it
			return
		}
		text, err := message.Encode(nil)
		if err != nil {
			_ = c.conn.Close()
			return
		}
		ready, isReady := message.(*pgproto3.ReadyForQuery)
		if isReady {
			c.mu.Lock()
			if c.server != server { // dropped meanwhile, and replaced
				c.mu.Unlock()
				return
			}
			c.syncs--
			if ready.TxStatus == 'I' && c.syncs == 0 && !c.pending {
				// Given back before the client hears of it, or its next transaction would find it still taken.
				c.server = nil
				c.pooler.idle <- server
				c.mu.Unlock()
				_, _ = c.conn.Write(text)
				return
			}
			c.mu.Unlock()
		}
		// A client that is gone does not take its answers; the server is closed by drop.
		_, _ = c.conn.Write(text)
	}
}

// drop closes a server that the client left in the middle of something, and replaces it.
func (c *poolerClient) drop() {
	c.mu.Lock()
	server, done := c.server, c.done
	c.server = nil
	c.mu.Unlock()
	if server == nil {
		return
	}
	_ = server.Conn.Close()
	<-done
	if !c.pooler.ending.Load() {
		_ = c.pooler.addServer() // without a backend the next client waits, and its test fails by time
	}
}
