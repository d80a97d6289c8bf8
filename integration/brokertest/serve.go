//go:build unix

package brokertest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// These bound every wait for one thing; none is expected to come near its bound. A broker may take long to start on a
// machine that has other work.
const (
	patience      = 60 * time.Second
	startPatience = 3 * time.Minute
)

// FreeAddress is one of 127.0.0.1 that nobody listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// server is a broker in a process of its own.
type server struct {
	address string
	start   func() (*running, error)
	ready   func(ctx context.Context) error
	now     *running
}

func (s *server) Address() string { return s.address }

// Kill ends the broker for good.
func (s *server) Kill() { s.now.kill() }

func (s *server) Restart() error {
	s.now.kill()
	return s.open()
}

func (s *server) open() (err error) {
	if s.now, err = s.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	_, err = Connect(ctx, func() (struct{}, error) { return struct{}{}, s.ready(ctx) })
	if err != nil {
		return fmt.Errorf("the broker does not answer: %w; its log ends with:\n%s", err, tail(s.now.log))
	}
	return nil
}

// Serve starts the broker of [Clients.Serve] in a process of its own, on 127.0.0.1, with a folder that lives as long as
// the test. It returns when ready does not fail any more.
func Serve(t testing.TB, ready func(ctx context.Context, address string) error) Server {
	t.Helper()
	folder := t.TempDir()
	r := role{Kind: "broker", Name: "broker", Broker: FreeAddress(t), Folder: filepath.Join(folder, "data")}
	return serve(t, &server{
		address: r.Broker,
		start:   func() (*running, error) { return start(r, filepath.Join(folder, "broker.log")) },
		ready:   func(ctx context.Context) error { return ready(ctx, r.Broker) },
	})
}

// ServeCommand starts an installed broker the same way. command is called for each start; folder is where its log goes.
// The process, and all that it has started, is killed at the end of the test or of the test's process.
func ServeCommand(t testing.TB, folder, address string, command func() *exec.Cmd, ready func(ctx context.Context, address string) error) Server {
	t.Helper()
	return serve(t, &server{
		address: address,
		start:   func() (*running, error) { return keep(command(), filepath.Join(folder, "broker.log")) },
		ready:   func(ctx context.Context) error { return ready(ctx, address) },
	})
}

func serve(t testing.TB, s *server) Server {
	t.Helper()
	t.Cleanup(func() {
		if s.now == nil {
			return
		}
		s.now.kill()
		if t.Failed() {
			t.Logf("the broker's log ends with:\n%s", tail(s.now.log))
		}
	})
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Installed returns the path of a program, in PATH or one of the folders. Without it the test fails, and says what to
// install.
func Installed(t testing.TB, program, remedy string, folders ...string) string {
	t.Helper()
	for _, candidate := range append([]string{program}, inFolders(program, folders)...) {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	t.Fatalf("%s is not installed (looked in PATH and %s): %s", program, strings.Join(folders, ", "), remedy)
	return ""
}

func inFolders(program string, folders []string) (paths []string) {
	for _, f := range folders {
		paths = append(paths, filepath.Join(f, program))
	}
	return paths
}
