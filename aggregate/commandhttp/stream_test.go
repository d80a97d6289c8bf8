package commandhttp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
)

// event is one server-sent event; comments have only a comment.
type event struct {
	id, name, comment string
	data              map[string]any
}

// events reads an event stream.
type events struct {
	response *http.Response
	lines    *bufio.Scanner
}

func (w *world) listen(t *testing.T, id uuid.UUID, headers ...string) *events {
	t.Helper()
	r := w.request(t, http.MethodGet, "/operations/"+id.String(), "", append(headers, "Accept: text/event-stream")...)
	response, err := w.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return &events{response, bufio.NewScanner(response.Body)}
}

// next returns the next event, and false at the end of the stream.
func (e *events) next(t *testing.T) (found event, ok bool) {
	t.Helper()
	for e.lines.Scan() {
		name, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch name {
		case "id":
			found.id = value
		case "event":
			found.name = value
		case "data":
			if err := json.Unmarshal([]byte(value), &found.data); err != nil {
				t.Fatal(err)
			}
		case "":
			if value != "" {
				found.comment = value
				continue
			}
			if found.data != nil || found.comment != "" {
				return found, true
			}
		}
	}
	return found, false
}

func TestEventStream(t *testing.T) {
	t.Parallel()
	w, q := newAsync(t, nil)
	id := idOf(t, w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, "Idempotency-Key: k", async))
	stream := w.listen(t, id)
	if stream.response.StatusCode != http.StatusOK || stream.response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", stream.response.StatusCode, stream.response.Header)
	}
	if e, _ := stream.next(t); e.id != "1" || e.name != "accepted" || e.data["state"] != "accepted" {
		t.Errorf("%+v", e)
	}
	q.edit(id, func(op *bus.Operation) { op.Progress = 0.5 })
	if e, _ := stream.next(t); e.id != "2" || e.data["progress"] != 0.5 {
		t.Errorf("%+v", e)
	}
	// One that comes later gets what is new to it.
	late := w.listen(t, id, "Last-Event-ID: 2")
	q.run(t.Context(), w.bus, id)
	for name, s := range map[string]*events{"first": stream, "late": late} {
		var last event
		for {
			e, more := s.next(t)
			if !more {
				break
			}
			if e.id <= "2" {
				t.Errorf("%s: %+v is not new", name, e)
			}
			last = e
		}
		if last.id != "4" || last.name != "done" || last.data["etag"] != `"v3"` {
			t.Errorf("%s: the last is %+v", name, last)
		}
	}
	// Who has seen the end need not come again.
	if s := w.listen(t, id, "Last-Event-ID: 4"); s.response.StatusCode != http.StatusNoContent {
		t.Errorf("%d", s.response.StatusCode)
	}
	if e, _ := w.listen(t, id, "Last-Event-ID: x").next(t); e.name != "done" {
		t.Errorf("%+v", e)
	}
	if began, ended := q.watches(); began != ended {
		t.Errorf("%d of %d watches have ended", ended, began)
	}
}

// Over HTTP/2 a stream is one of many on its connection, which goes on.
func TestEventStreamHTTP2(t *testing.T) {
	t.Parallel()
	w, q := newAsync(t, func(c *commandhttp.Config) { c.WriteTime, c.Heartbeat = 20*time.Millisecond, 100*time.Millisecond })
	secure := httptest.NewUnstartedServer(w.api)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	plain := w.server
	w.server = secure
	defer func() { w.server = plain }()
	id := idOf(t, w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, "Idempotency-Key: k", async))
	stream := w.listen(t, id)
	if stream.response.ProtoMajor != 2 {
		t.Fatalf("%s", stream.response.Proto)
	}
	if e, _ := stream.next(t); e.name != "accepted" {
		t.Errorf("%+v", e)
	}
	// The time for a piece is not that of the stream.
	for range 2 {
		if e, more := stream.next(t); !more || e.comment == "" {
			t.Fatalf("%t %+v", more, e)
		}
	}
	q.run(t.Context(), w.bus, id)
	last := ""
	for {
		e, more := stream.next(t)
		if !more {
			break
		}
		last = e.name
	}
	if last != "done" {
		t.Errorf("the last is %q", last)
	}
	w.send(t, http.MethodGet, "/operations/"+id.String(), "").says(t, http.StatusOK, map[string]any{"state": "done"})
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	w, _ := newAsync(t, func(c *commandhttp.Config) { c.Heartbeat = time.Millisecond })
	id := idOf(t, w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, "Idempotency-Key: k", async))
	stream := w.listen(t, id)
	beats := 0
	for beats < 3 {
		e, more := stream.next(t)
		if !more {
			t.Fatal("the stream has ended")
		}
		if e.comment != "" {
			beats++
		}
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	w, q := newAsync(t, func(c *commandhttp.Config) { c.Streams, c.StreamsEach = 3, 2 })
	mine := idOf(t, w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, "Idempotency-Key: k", async))
	w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, "Idempotency-Key: k", async, "X-Actor: bob")
	var his uuid.UUID
	for id := range q.all {
		if id != mine {
			his = id
		}
	}
	one, two := w.listen(t, mine), w.listen(t, mine)
	if s := w.listen(t, mine); s.response.StatusCode != http.StatusServiceUnavailable || s.response.Header.Get("Retry-After") == "" {
		t.Errorf("the third of one caller: %d", s.response.StatusCode)
	}
	three := w.listen(t, his, "X-Actor: bob")
	if s := w.listen(t, his, "X-Actor: bob"); s.response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the fourth: %d", s.response.StatusCode)
	}
	// Who goes away leaves a place.
	one.response.Body.Close()
	if err := q.until(t.Context(), func() bool { return q.left == 1 }); err != nil {
		t.Fatal(err)
	}
	w.api.Close()
	for _, s := range []*events{two, three} {
		for {
			if _, more := s.next(t); !more {
				break
			}
		}
	}
	if err := q.until(t.Context(), func() bool { return q.left == 3 }); err != nil {
		t.Fatal(err)
	}
}

// A client that takes nothing any more does not hold its stream.
func TestDeadClient(t *testing.T) {
	t.Parallel()
	w, q := newAsync(t, func(c *commandhttp.Config) { c.WriteTime = 50 * time.Millisecond })
	id := idOf(t, w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, "Idempotency-Key: k", async))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /operations/"+id.String()+" HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := q.until(t.Context(), func() bool { return q.watched == 1 }); err != nil {
		t.Fatal(err)
	}
	note := strings.Repeat("x", 1<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if _, ended := q.watches(); ended == 1 {
			return
		}
		q.edit(id, func(op *bus.Operation) { op.Note = note })
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the stream is held")
		}
	}
}
