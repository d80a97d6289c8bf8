//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pgserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// serverAccount says as whom servers run: as the caller, or, when that is root
// (which initdb and postgres refuse), as postgres, else nobody.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseInt(u.Uid, 10, 64) // nobody is -2 on some systems
		gid, err2 := strconv.ParseInt(u.Gid, 10, 64)
		if err1 != nil || err2 != nil || uid == 0 {
			continue
		}
		return account{uid: int(uint32(uid)), gid: int(uint32(gid)), drop: true}, nil
	}
	return account{}, notHere("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")
}

// detach gives the command a session of its own, so that Ctrl-C in a terminal
// does not reach it.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

func (a account) detach(cmd *exec.Cmd) {
	detach(cmd)
	if a.drop {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
}

// exited collects a child that has ended, without waiting and without a
// goroutine: leak detectors of the tests that use a server see none.
func exited(pid int) (bool, string) {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return true, "it was collected elsewhere"
		case got == 0:
			return false, ""
		case ws.Signaled():
			return true, "signal " + ws.Signal().String()
		default:
			return true, fmt.Sprintf("exit code %d", ws.ExitStatus())
		}
	}
}

// alive says whether a process that need not be a child still runs.
func alive(pid int) bool {
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return false
	}
	// A dead process that nobody collects still answers.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !isProc()
	}
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	return !bytes.HasPrefix(rest, []byte(" Z"))
}

func isProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// serves says whether a process is the postgres of a data folder: a number in
// an old pid file may belong to anybody by now.
func serves(pid int, data string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		line, err = exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	}
	return err == nil && bytes.Contains(line, []byte(data))
}

// Signals by what PostgreSQL makes of them.
func stopAtOnce(pid int) error { return syscall.Kill(pid, syscall.SIGQUIT) }
func stopFast(pid int) error   { return syscall.Kill(pid, syscall.SIGINT) }
func kill(pid int) error       { return syscall.Kill(pid, syscall.SIGKILL) }

// tryLock takes an exclusive lock that ends with the open file, thus also with
// the process.
func tryLock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

func ownerOf(info os.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
