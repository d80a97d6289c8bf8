package pgserver

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	folderPrefix = "daybook-pg-"
	ownerFile    = "owner.lock" // locked as long as the folder's owner lives
)

// watcher is a shell that waits for the end of a pipe whose other end only this
// process holds: whatever ends us closes it. It then ends the server and removes
// its folder, which a process killed by SIGKILL cannot do itself.
type watcher struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// watcherScript reads a process id per line. $1 is the server's folder.
const watcherScript = `
trap '' HUP INT TERM QUIT
pid=0
while read -r line; do pid=$line; done
[ "$pid" = closed ] && exit 0
file="$1/data/postmaster.pid"
if [ "$pid" = 0 ] && [ -f "$file" ]; then read -r pid < "$file"; fi
if [ "$pid" -gt 1 ]; then
	kill -QUIT "$pid"
	n=0
	while [ $n -lt 100 ] && [ -f "$file" ] && kill -0 "$pid"; do sleep 0.1; n=$((n + 1)); done
	[ -f "$file" ] && kill -KILL "$pid"
fi
n=0
while [ $n -lt 50 ] && ! rm -rf "$1"; do sleep 0.1; n=$((n + 1)); done
`

func startWatcher(script string, args ...string) (*watcher, error) {
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, "daybook-pg-watcher"}, args...)...)
	detach(cmd)
	cmd.Dir = "/"
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	return &watcher{cmd: cmd, pipe: pipe}, nil
}

// watch names the process to end. A watcher that is gone is no reason to stop:
// the next start sweeps.
func (w *watcher) watch(pid int) { _, _ = fmt.Fprintln(w.pipe, pid) }

// dismiss ends the watcher after everything was removed.
func (w *watcher) dismiss() error {
	_, _ = fmt.Fprintln(w.pipe, "closed")
	if err := w.pipe.Close(); err != nil {
		return err
	}
	// Its exit code says nothing that matters: there is nothing left to do.
	_ = w.cmd.Wait()
	return nil
}

// sweep removes folders of owners that ended together with their watcher.
// Failures are left for the next start.
func sweep(base string, as account, now time.Time) {
	dirs, _ := filepath.Glob(filepath.Join(base, folderPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		// A young folder may belong to an owner that has not locked it yet.
		if err != nil || !info.IsDir() || ownerOf(info) != as.uid || now.Sub(info.ModTime()) < time.Minute {
			continue
		}
		sweepOne(dir)
	}
}

func sweepOne(dir string) {
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR, 0)
	switch {
	case err == nil:
		defer f.Close()
		if !tryLock(f) {
			return // its owner lives
		}
	case !os.IsNotExist(err):
		return
	}
	data := filepath.Join(dir, "data")
	if pid := readPID(data); pid > 1 && alive(pid) && serves(pid, data) {
		if stopAtOnce(pid) != nil {
			return
		}
		waitGone(pid, 10*time.Second)
	}
	_ = removeAll(dir)
}

// readPID reads the process id that a running postmaster leaves in its data
// folder, 0 without one.
func readPID(data string) int {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(first))
	return pid
}
