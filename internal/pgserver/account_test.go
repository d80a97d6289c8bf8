//go:build unix

package pgserver

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
	"testing"
)

// Machines without a user postgres have nobody.
func TestServerAsNobody(t *testing.T) {
	t.Parallel()
	as := account{uid: os.Geteuid(), gid: os.Getegid()}
	if as.uid == 0 { // others cannot change to another user, and need not
		u, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, err := strconv.ParseInt(u.Uid, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		as = account{uid: int(uint32(uid)), gid: int(uint32(uid)), drop: true}
	}
	s, err := startAs(t.Context(), as, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info, err := os.Stat(s.data())
	if err != nil {
		t.Fatal(err)
	}
	if got := int(info.Sys().(*syscall.Stat_t).Uid); got != as.uid || info.Mode().Perm() != 0o700 {
		t.Errorf("the data belongs to %d with mode %o, want %d and 700", got, info.Mode().Perm(), as.uid)
	}
	if _, err := pingOnce(t.Context(), s.URL()); err != nil {
		t.Error(err)
	}
}
