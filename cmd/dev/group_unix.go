//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// group makes the command the head of a process group of its own, so that an
// interrupt reaches what it started as well, whoever got the signal first.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
}

// endGroup ends what is left of the group.
func endGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // nothing left is the usual case
	}
}
