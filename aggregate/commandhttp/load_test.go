package commandhttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
)

// Clients send each withdrawal up to three times at once, and again when they are sent away. However many arrive, each is
// taken once, and all answers to one key are the same.
func TestManyClients(t *testing.T) {
	t.Parallel()
	gate, err := admission.New(admission.Config{MinConcurrency: 2, MaxConcurrency: 2, InitialConcurrency: 2, Queue: 4})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(_ *world, c *commandhttp.Config) { c.Gate = gate }, bus.TellIfRunning())
	const accounts, clients, each = 3, 16, 12
	for i := range accounts {
		w.rich(t, fmt.Sprint(i))
	}
	w.server.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 3 * clients
	var (
		mu    sync.Mutex
		taken [accounts]int64
		sent  int
		wait  sync.WaitGroup
	)
	for client := range clients {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(client)))
			for n := range each {
				account, cents, copies := random.IntN(accounts), 1+random.Int64N(3), 1+random.IntN(3)
				answers := make([]answer, copies)
				var all sync.WaitGroup
				for i := range copies {
					all.Go(func() { answers[i] = w.insist(t, account, cents, fmt.Sprintf("%d-%d", client, n)) })
				}
				all.Wait()
				for _, a := range answers {
					if a.status != answers[0].status || a.text != answers[0].text {
						t.Errorf("one key is answered with %d %s and %d %s", answers[0].status, answers[0].text, a.status, a.text)
					}
				}
				mu.Lock()
				sent++
				if answers[0].status == http.StatusCreated {
					taken[account] += cents
				} else if answers[0].status != http.StatusUnprocessableEntity {
					t.Errorf("%d %s", answers[0].status, answers[0].text)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	for i := range accounts {
		if a := w.load(t, fmt.Sprint(i)); a.State.Balance != 100-taken[i] || a.State.Balance < 0 {
			t.Errorf("account %d has %d, of 100 were taken %d", i, a.State.Balance, taken[i])
		}
	}
	if s := gate.Stats(); sent != clients*each || s.Running != 0 || s.Waiting() != 0 {
		t.Errorf("%d sent, %+v", sent, s)
	}
}

// insist sends a withdrawal until it has an answer that is one.
func (w *world) insist(t *testing.T, account int, cents int64, key string) (a answer) {
	path, body := fmt.Sprintf("/accounts/%d/withdrawals", account), fmt.Sprintf(`{"cents":%d}`, cents)
	for range 2000 {
		var err error
		if a, err = w.try(w.request(t, http.MethodPost, path, body, "Idempotency-Key: "+key)); err != nil {
			t.Error(err)
			return a
		}
		switch a.status {
		case http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable:
			if !retry(a) {
				t.Errorf("nobody says when to come back: %d %v", a.status, a.header)
			}
			select {
			case <-time.After(time.Duration(1+rand.IntN(5)) * time.Millisecond): // a second would be too long for a test
			case <-t.Context().Done():
				return a
			}
		default:
			return a
		}
	}
	t.Error("there is no end to it")
	return a
}

// A client that asks before it sends the body (Expect: 100-continue) never sends the body of what is sent away.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	w, gate, free := full(t, 1)
	first := make(chan struct{})
	go func() {
		defer close(first)
		if _, err := w.try(w.request(t, http.MethodGet, "/total", "", "X-Class: critical")); err != nil {
			t.Error(err)
		}
	}()
	waitFor(t, gate, 1)
	ask := func(key string) (net.Conn, *bufio.Reader, string) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, "POST /anything HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
			"Idempotency-Key: "+key+"\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(conn)
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return conn, reader, line
	}
	if _, _, line := ask("a"); !strings.HasPrefix(line, "HTTP/1.1 503") {
		t.Errorf("the server says %q", line)
	}
	free()
	<-first
	w.handle = fail(nil)
	conn, reader, line := ask("b")
	if !strings.HasPrefix(line, "HTTP/1.1 100") {
		t.Errorf("the server says %q", line)
	}
	if _, err := io.WriteString(conn, "{}"); err != nil {
		t.Fatal(err)
	}
	_, _ = reader.ReadString('\n') // the empty line
	if line, err := reader.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 204") {
		t.Errorf("the server says %q, %v", line, err)
	}
}

// What a command costs on its way through the API, and by the bus alone.
func BenchmarkCommand(b *testing.B) {
	w := newWorld(b, nil)
	w.handle = func(context.Context, anything) (bus.Reply, error) { return bus.Reply{Result: 1}, nil }
	b.Run("bus", func(b *testing.B) {
		for b.Loop() {
			if _, err := w.bus.Send(b.Context(), anything{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("api", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r := httptest.NewRequest(http.MethodPost, "/anything", strings.NewReader(`{"secret":"x"}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set(commandhttp.KeyHeader, `"k"`)
			recorder := httptest.NewRecorder()
			if w.api.ServeHTTP(recorder, r); recorder.Code != http.StatusOK {
				b.Fatal(recorder.Body)
			}
		}
	})
}

// A client that does not read its answer has no place among those that work.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	gate, err := admission.New(admission.Config{MinConcurrency: 1, MaxConcurrency: 1, InitialConcurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(_ *world, c *commandhttp.Config) { c.Gate = gate })
	loaded := make(chan struct{})
	commandhttp.Query(w.api, "GET /large", commandhttp.Read[string]{
		Load: func(context.Context, *http.Request) (string, error) {
			close(loaded)
			return strings.Repeat("x", 16<<20), nil
		},
	})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-loaded
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for gate.Stats().Running > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the place is not given back")
		}
	}
	w.send(t, http.MethodGet, "/total", "").says(t, http.StatusOK, nil)
}
