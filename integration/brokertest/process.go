//go:build unix

package brokertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"
)

// variable holds the role of this process as JSON; empty in the test itself.
const variable = "DAYBOOK_INTEGRATION_ROLE"

// Main runs the tests of a package, or the role for which this process was started.
func Main(m *testing.M, c Clients) {
	text := os.Getenv(variable)
	if text == "" {
		os.Exit(m.Run())
	}
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test
		os.Exit(4)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := play(ctx, c, r, os.Stdout); err != nil {
		fmt.Fprintln(os.Stdout, "failed:", err)
		os.Exit(3)
	}
	os.Exit(0)
}

// running is a process, or what stands for one in this process.
type running struct {
	log  string
	kill func()
	stop func() error // asks for the end, and waits for it
}

// start runs a role of this program in a process of its own.
func start(r role, log string) (*running, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	return launch(cmd, log)
}

// launch runs a command that ends when its standard input does.
func launch(cmd *exec.Cmd, log string) (*running, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_ = in.Close() // Wait has closed it
		ended <- err
	}()
	p := &running{log: log}
	p.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // an ended process needs no end
		<-ended
	})
	p.stop = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case err := <-ended:
			ended <- nil // for kill
			return err
		case <-timer.C:
			p.kill()
			return fmt.Errorf("it did not end within %v", patience)
		}
	}
	return p, nil
}

// startHere runs a role in this process.
func (c Clients) startHere(r role, log string) (*running, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := play(ctx, c, r, out)
		if err != nil {
			_, _ = fmt.Fprintln(out, "failed:", err)
		}
		ended <- errors.Join(err, out.Close())
	}()
	p := &running{log: log}
	stop := sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	p.kill = func() { _ = stop() } // what it says is in its log
	p.stop = stop
	return p, nil
}
