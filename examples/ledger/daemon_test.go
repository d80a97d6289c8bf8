package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/examples/ledger/api"
)

// daemon is the program as a process that stays.
type daemon struct {
	process *os.Process
	ready   string // the line that it has begun with
	out     *output
	notes   *output
	ended   chan struct{}
	code    int
}

// output is what a process has printed so far.
type output struct {
	mu   sync.Mutex
	text strings.Builder
	grew chan struct{}
}

func newOutput() *output { return &output{grew: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.grew)
	o.grew = make(chan struct{})
	return o.text.Write(p)
}

func (o *output) now() (text string, grew <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.grew
}

func (o *output) String() string {
	text, _ := o.now()
	return text
}

// start runs the program until it prints a line that begins like this.
func (s shell) start(t *testing.T, begins string, args ...string) *daemon {
	t.Helper()
	// Not the test's context, which ends before the process is told to.
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	cmd, _, _ := s.command(ctx, args...)
	d := &daemon{out: newOutput(), notes: newOutput(), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = d.out, d.notes
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	d.process = cmd.Process
	go func() {
		defer close(d.ended)
		defer cancel()
		_ = cmd.Wait() // the exit code says it
		d.code = cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = d.process.Kill() // one that has ended needs no end
		<-d.ended
	})
	d.ready = d.waitFor(t, d.out, begins)
	return d
}

// waitFor returns the first line of an output that has these words.
func (d *daemon) waitFor(t *testing.T, in *output, words string) string {
	t.Helper()
	deadline := time.After(patience / 4)
	for {
		text, grew := in.now()
		for line := range strings.Lines(text) {
			if strings.Contains(line, words) {
				return strings.TrimSpace(line)
			}
		}
		select {
		case <-grew:
		case <-d.ended:
			t.Fatalf("the program ended with %d, and printed no line with %q:\n%s%s", d.code, words, d.out, d.notes)
		case <-deadline:
			t.Fatalf("the program prints no line with %q:\n%s%s", words, d.out, d.notes)
		}
	}
}

// stop terminates the program, which has two seconds.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	began := time.Now()
	if err := d.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-d.ended
	if took := time.Since(began); d.code != 0 || took > 2*time.Second {
		t.Errorf("the program ended %s after it was told to, with %d; want 0, within 2 s:\n%s", took, d.code, d.notes)
	}
}

// died waits for the end of a program that was armed, and reports whether it was killed.
func (d *daemon) died(t *testing.T) bool {
	t.Helper()
	select {
	case <-d.ended:
		return d.code == -1
	case <-time.After(patience / 4):
		return false
	}
}

// client speaks to "ledger serve".
type client struct{ url string }

func (s shell) serve(t *testing.T) (*daemon, client) {
	t.Helper()
	d := s.start(t, "serving ", "serve", "--listen", "127.0.0.1:0")
	return d, client{strings.TrimPrefix(d.ready, "serving ")}
}

func (s shell) work(t *testing.T) *daemon {
	t.Helper()
	return s.start(t, "working: ", "work")
}

// reply is an answer of the server.
type reply struct {
	status int
	header http.Header
	text   string
	body   struct {
		Key      string
		Balances []struct{ Account, Amount, Commodity string }
		Behind   int64
		Working  *bool
		State    string
	}
}

func (r reply) token() string { return r.header.Get(api.TokenHeader) }

// balance is that of an answer about one account.
func (r reply) balance() string {
	if len(r.body.Balances) != 1 {
		return ""
	}
	return r.body.Balances[0].Amount
}

// do makes a request; headers are name, value and so on. The server may be away: then the status is 0.
func (c client) do(t *testing.T, method, path, body string, headers ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return reply{}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{text: err.Error()}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{text: err.Error()}
	}
	out := reply{status: response.StatusCode, header: response.Header, text: string(text)}
	if err := json.Unmarshal(text, &out.body); err != nil {
		t.Errorf("%s %s: %v in %q", method, path, err, text)
	}
	return out
}

// post posts an entry under a key of its own.
func (c client) post(t *testing.T, body string) reply {
	t.Helper()
	return c.postAs(t, uuid.NewString(), body)
}

func (c client) postAs(t *testing.T, key, body string) reply {
	t.Helper()
	return c.do(t, http.MethodPost, "/entries", body, "Content-Type", "application/json", api.KeyHeader, key)
}

func (c client) read(t *testing.T, path, token string, headers ...string) reply {
	t.Helper()
	return c.do(t, http.MethodGet, path, "", append(headers, api.TokenHeader, token)...)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
