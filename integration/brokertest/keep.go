//go:build unix

package brokertest

import (
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// keeper ends the process group $1 when its standard input ends, with this process. A line tells it to leave instead.
const keeper = `read -r line || kill -9 -- "-$1" 2>/dev/null`

// keep runs a foreign command, which does not look at its standard input, as the head of a process group of its own. A
// shell beside it ends the group when this process dies.
func keep(cmd *exec.Cmd, log string) (*running, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	group := cmd.Process.Pid
	end := sync.OnceFunc(func() {
		_ = syscall.Kill(-group, syscall.SIGKILL) // nothing left is as good
		_ = cmd.Wait()
	})
	watch := exec.Command("/bin/sh", "-c", keeper, "sh", strconv.Itoa(group))
	watch.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C must not end it first
	in, err := watch.StdinPipe()
	if err == nil {
		err = watch.Start()
	}
	if err != nil {
		end()
		return nil, err
	}
	p := &running{log: log}
	p.kill = sync.OnceFunc(func() {
		end()
		_, _ = in.Write([]byte("\n")) // a keeper that has died is not needed any more
		_ = watch.Wait()
	})
	p.stop = func() error { p.kill(); return nil }
	return p, nil
}
