package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTestArgs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		race bool
		args string
		want string
	}{
		{true, "", "go test -race -shuffle=on -count=1 -timeout=18m ./..."},
		{false, "-run X", "go test -shuffle=on -count=1 -timeout=18m -run X ./..."},
		{true, "-timeout=60m ./eventstore/...", "go test -race -shuffle=on -count=1 -timeout=18m -timeout=60m ./eventstore/..."},
	} {
		if got := strings.Join(testArgs(c.race, "18m", strings.Fields(c.args)), " "); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestIntegrationArgs(t *testing.T) {
	for _, c := range []struct{ full, args, want string }{
		{"", "", "go test -p=2 -count=1 -timeout=10m ./..."},
		{"1", "-race", "go test -p=2 -count=1 -timeout=60m -race ./..."},
		{"", "-v ./jetstream", "go test -p=2 -count=1 -timeout=10m -v ./jetstream"},
	} {
		t.Setenv("DAYBOOK_TEST_SCALE", "")
		t.Setenv("FULL", c.full)
		if got := strings.Join(integrationArgs(strings.Fields(c.args)), " "); got != c.want {
			t.Errorf("FULL=%s: got  %s\nwant %s", c.full, got, c.want)
		}
	}
}

// A file is the same one wherever the program runs.
func TestAbsolute(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	got := absolute([]string{"-chaos", "-orders", "5", "main.go", "no-such.csv"})
	want := []string{"-chaos", "-orders", "5", filepath.Join(here, "main.go"), "no-such.csv"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTimeLimit(t *testing.T) {
	for _, c := range []struct{ full, scale, want string }{
		{"", "", "18m"}, {"1", "", "60m"}, {"", "1", "60m"}, {"", "2.5", "60m"}, {"", "0.5", "18m"}, {"1", "0.1", "18m"},
	} {
		t.Setenv("FULL", c.full)
		t.Setenv("DAYBOOK_TEST_SCALE", c.scale)
		if got := timeLimit(); got != c.want {
			t.Errorf("FULL=%s DAYBOOK_TEST_SCALE=%s: %s, want %s", c.full, c.scale, got, c.want)
		}
	}
}

func TestCgoWorks(t *testing.T) {
	t.Parallel()
	gcc := func(p string) bool { return p == "gcc" }
	for _, c := range []struct {
		enabled, cc string
		ok          bool
		why         string
	}{
		{"1", "gcc", true, ""},
		{"1", "gcc -m64", true, ""},
		{"1", "clang", false, "no C compiler"},
		{"0", "gcc", false, "switched off"},
		{"1", "", false, "no C compiler"},
	} {
		ok, why := cgoWorks(c.enabled, c.cc, gcc)
		if ok != c.ok || !strings.Contains(why, c.why) {
			t.Errorf("CGO_ENABLED=%s CC=%q: %v, %q", c.enabled, c.cc, ok, why)
		}
	}
}

func TestFuzzTargets(t *testing.T) {
	t.Parallel()
	got := fuzzTargets("ok  \tm/a\t0.01s\nFuzzX\nFuzzY\nok  \tm/b\t0.02s\n?   \tm/c\t[no test files]\nFuzzZ\nok  \tm/d\t0.01s\n")
	want := []fuzzTarget{{"m/b", "FuzzX"}, {"m/b", "FuzzY"}, {"m/d", "FuzzZ"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestModules(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{".", "bench", "integration/nats", "testdata/x", ".cache/y", "_old"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "go.mod"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := modules(root)
	slices.Sort(got)
	if want := []string{".", "bench", filepath.Join("integration", "nats")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestCommandPassesTheExitCodeOn(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	d := &dev{root: t.TempDir(), out: &out, errOut: &out}
	var exit *exitError
	err := d.command(t.Context(), ".", []string{"GREETING=hello"}, "sh", "-c", "echo $GREETING; exit 7")
	if !errors.As(err, &exit) || exit.code != 7 || out.String() != "hello\n" {
		t.Errorf("got %v, %q", err, out.String())
	}
	if err := d.command(t.Context(), ".", nil, "no-such-program"); err == nil || errors.As(err, &exit) {
		t.Errorf("a program that is not there: %v", err)
	}
}

// What the command started ends with it, though only we were interrupted.
func TestCommandEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d := &dev{root: t.TempDir(), out: w, errOut: w}
	done := make(chan error, 1)
	go func() {
		done <- d.command(ctx, ".", nil, "sh", "-c", "sleep 600 & echo started; wait")
		w.Close()
	}()
	buf := make([]byte, 8)
	if n, err := r.Read(buf); err != nil || string(buf[:n]) != "started\n" {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("an interrupted command ended without an error")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the command did not end")
	}
	// The pipe ends when the last process that holds it has ended.
	if err := r.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(buf); n != 0 || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("something still runs: %d, %v", n, err)
	}
}

func TestRunPrintsErrorsAndExits(t *testing.T) {
	t.Parallel()
	var out, errOut strings.Builder
	if code := run(t.Context(), []string{"nonsense"}, &out, &errOut); code != 1 || !strings.Contains(errOut.String(), "nonsense") {
		t.Errorf("exit code %d, %q", code, errOut.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := run(ctx, []string{"stop"}, &out, &errOut); code != 130 {
		t.Errorf("interrupted: exit code %d, want 130", code)
	}
}
