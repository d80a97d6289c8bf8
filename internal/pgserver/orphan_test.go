//go:build unix

package pgserver_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/pgserver"
)

const ownerVariable = "DAYBOOK_TEST_OWNER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerVariable); dir != "" {
		os.Exit(ownAServer(dir))
	}
	os.Exit(m.Run())
}

// ownAServer is the process that the test kills.
func ownAServer(dir string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := pgserver.Start(ctx, pgserver.Options{Dir: dir})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("pid", s.PID())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until it is killed, or told to end without Close
	return 0
}

func TestServerDiesWithItsOwner(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*osexec.Cmd) error{
		"SIGKILL":            func(c *osexec.Cmd) error { return c.Process.Signal(syscall.SIGKILL) },
		"SIGINT":             func(c *osexec.Cmd) error { return c.Process.Signal(syscall.SIGINT) },
		"exit without Close": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := openFolder(t)
			in, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			cmd := osexec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), ownerVariable+"="+dir)
			cmd.Stdin = in
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			var pid int
			if _, err := fmt.Sscanf(line, "pid %d", &pid); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if !running(pid) || len(entries(t, dir)) != 1 {
				t.Fatalf("process %d runs: %v, folders %v", pid, running(pid), entries(t, dir))
			}

			if end == nil {
				err = out.Close()
			} else {
				err = end(cmd)
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed: the exit code is no news
			deadline := time.Now().Add(30 * time.Second)
			for running(pid) || len(entries(t, dir)) > 0 {
				if time.Now().After(deadline) {
					t.Fatalf("process %d runs: %v, folders %v", pid, running(pid), entries(t, dir))
				}
				<-time.After(10 * time.Millisecond)
			}
		})
	}
}

// running says whether a process lives; one that is dead but not collected does
// not.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z")
}
