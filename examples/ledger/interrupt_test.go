package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
)

// Ctrl-C ends an import between two statements of the program, and the next one goes on.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	path := longJournal(t)
	s, pool := newShell(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, _, notes := s.command(ctx, "import", path)
	cmd.Stderr = nil
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		notes.WriteString(lines.Text() + "\n")
		if lines.Text() == "read 25%" {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // the exit code says it
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(notes.String(), "run the same command again") {
		t.Errorf("the import ended with %d:\n%s", code, notes)
	}
	s.must(t, "import", path)
	audit(t, s, pool, path)
}

func TestProgressLines(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]string{
		3000: "read 25%\nread 75%\nread 100%\n", // a quarter that was passed by has no line
		-1:   "",
	} {
		var notes bytes.Buffer
		l := &lines{notes: &notes, size: size}
		for _, n := range []int{700, 100, 1500, 700} {
			if written, err := l.Write(make([]byte, n)); written != n || err != nil {
				t.Fatal(written, err)
			}
		}
		if notes.String() != want {
			t.Errorf("of %d bytes it says\n%s", size, notes.String())
		}
	}
}
