//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package pgserver

import (
	"errors"
	"os"
	"os/exec"
)

var errPlatform = errors.New("own servers need a unix-like system")

// serverAccount refuses, so that nothing below is reached with a server.
func serverAccount() (account, error) { return account{}, notHere("%v", errPlatform) }

func detach(*exec.Cmd)           {}
func (account) detach(*exec.Cmd) {}
func exited(int) (bool, string)  { return true, errPlatform.Error() }
func alive(int) bool             { return false }
func serves(int, string) bool    { return false }
func stopAtOnce(int) error       { return errPlatform }
func stopFast(int) error         { return errPlatform }
func kill(int) error             { return errPlatform }
func tryLock(*os.File) bool      { return false }
func ownerOf(os.FileInfo) int    { return -1 }
