package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
)

// superuser is the role of own servers; its password is random.
const superuser = "postgres"

// account is as whom a server runs.
type account struct {
	uid, gid int
	drop     bool // another account than the caller's
}

// own gives a file or folder to the account.
func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}

// canEnter says whether the account may pass through every folder of a path.
// The home of root, for one, keeps others out.
func (a account) canEnter(path string) error {
	if !a.drop {
		return nil
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 && ownerOf(info) != a.uid {
			return fmt.Errorf("%s keeps the user of the server out", dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// tempBase is the folder for throw-away servers: the usual one, unless the
// server's account cannot enter it.
func (a account) tempBase() (string, error) {
	var first error
	for _, dir := range []string{os.TempDir(), "/var/tmp", "/tmp"} {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			err = a.canEnter(real)
		}
		if err == nil {
			return real, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", fmt.Errorf("no temporary folder for a server: %w", first)
}
