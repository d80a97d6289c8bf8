package pgserver

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// initdb makes a data folder owned by the account, for a superuser with the
// password. The folder that holds it must belong to the account.
func initdb(ctx context.Context, bin Binaries, as account, data, password string, sync bool) error {
	dir := filepath.Dir(data)
	file := filepath.Join(dir, "password")
	kept, err := verifier(password)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(kept+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	if err := as.own(file); err != nil {
		return err
	}
	args := []string{
		"-D", data, "-U", superuser, "--pwfile", file, "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--no-locale", "--no-instructions",
	}
	if !sync {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, bin.path("initdb"), args...)
	as.detach(cmd)
	cmd.Dir, cmd.Env = dir, cleanEnv(dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb in %s: %w: %s", data, err, tail(out))
	}
	return nil
}

// settings are the command line of every own server.
func settings(port int, fsync bool, more map[string]string) []string {
	all := map[string]string{
		"listen_addresses":          "127.0.0.1",
		"port":                      strconv.Itoa(port),
		"unix_socket_directories":   "",
		"max_connections":           "300",
		"max_prepared_transactions": "100",
		"max_wal_size":              "2GB",
		"fsync":                     onOff(fsync),
		"full_page_writes":          onOff(fsync),
		"log_checkpoints":           "off",
		"timezone":                  "UTC",
		"log_timezone":              "UTC",
	}
	maps.Copy(all, more)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	return args
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// launch runs postgres and waits for the first connection.
func (s *Server) launch(ctx context.Context) error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{"-D", s.data()}, settings(s.port, s.opts.Fsync, s.opts.Settings)...)
	cmd := exec.Command(s.bin.path("postgres"), args...) // outlives ctx: Close ends it
	s.as.detach(cmd)
	cmd.Dir, cmd.Env = s.dir, cleanEnv(s.dir)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.pid = cmd.Process.Pid
	s.watcher.watch(s.pid)
	// From here on exited collects the process.
	_ = cmd.Process.Release()

	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		if done, how := exited(s.pid); done {
			s.pid = 0
			s.watcher.watch(0)
			text, _ := os.ReadFile(s.log()) // an unreadable log is an empty one
			return &earlyExitError{how: how, log: string(text)}
		}
		_, err := pingOnce(ctx, s.URL())
		if err == nil {
			return nil
		}
		if !pause(ctx, 10*time.Millisecond) {
			stop := s.end(kill)
			return fmt.Errorf("no connection to 127.0.0.1:%d: %w (%v)", s.port, redact(err, s.password), stop)
		}
	}
}

// end sends a signal and collects the postmaster, by force when it lingers.
func (s *Server) end(send func(int) error) error {
	if done, _ := exited(s.pid); !done {
		if err := send(s.pid); err != nil {
			return fmt.Errorf("signal process %d: %w", s.pid, err)
		}
	}
	forced := time.Now().Add(20 * time.Second)
	for {
		if done, _ := exited(s.pid); done {
			break
		}
		if time.Now().After(forced) {
			if err := kill(s.pid); err != nil {
				return fmt.Errorf("kill process %d: %w", s.pid, err)
			}
			forced = time.Now().Add(time.Second)
		}
		pause(context.Background(), 2*time.Millisecond)
	}
	s.pid = 0
	s.watcher.watch(0)
	return nil
}

// earlyExitError is a postgres that ended before it served. What it is judged by may stand anywhere in the log: processes of
// a server that was killed write there too, until they are gone.
type earlyExitError struct{ how, log string }

func (e *earlyExitError) Error() string {
	return fmt.Sprintf("postgres ended while starting (%s): %s", e.how, tail([]byte(e.log)))
}

func (e *earlyExitError) portTaken() bool {
	return strings.Contains(e.log, "could not bind") || strings.Contains(e.log, "could not create any TCP/IP sockets")
}

// leftovers says that processes of the server that was killed are still there.
func (e *earlyExitError) leftovers() bool {
	return e.portTaken() ||
		strings.Contains(e.log, "pre-existing shared memory block") ||
		strings.Contains(e.log, "postmaster.pid")
}

// tail is the end of an output in one line, for error texts.
func tail(out []byte) string {
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	if len(lines) > 5 {
		lines = lines[len(lines)-5:]
	}
	return strings.Join(lines, " | ")
}

// waitGone waits for the end of a process that is not ours to collect.
func waitGone(pid int, patience time.Duration) bool {
	for deadline := time.Now().Add(patience); alive(pid); {
		if time.Now().After(deadline) {
			return false
		}
		pause(context.Background(), 10*time.Millisecond)
	}
	return true
}
