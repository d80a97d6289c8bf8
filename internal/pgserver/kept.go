package pgserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// keptDatabase is the database of the kept server that programs use.
const keptDatabase = "daybook"

// KeptOptions describe the kept server. The zero value is the one of this user.
type KeptOptions struct {
	// Dir holds its data, state and lock. Default: KeptDir.
	Dir string
}

// KeptDir is the folder of this user's kept server: DAYBOOK_SERVER_DIR when that
// is set, /var/lib/daybook-dev for root (whose home the server's user cannot
// enter), else daybook/server in the user's cache folder.
func KeptDir() (string, error) {
	if dir := os.Getenv("DAYBOOK_SERVER_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	if os.Geteuid() == 0 {
		return "/var/lib/daybook-dev", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the kept server: %w", noFolder(err))
	}
	return filepath.Join(cache, "daybook", "server"), nil
}

// Kept takes the user's kept server, and makes or starts it where needed. It
// stays when the program ends; see StopKept.
func Kept(opts KeptOptions) Source {
	return Source{Name: "own kept server", Open: func(ctx context.Context) (Handle, error) {
		k, err := openKept(opts)
		if err != nil {
			return Handle{}, err
		}
		return k.open(ctx)
	}}
}

// StopKept stops the kept server of a folder ("" means KeptDir) and returns when
// it has ended; its data stays. It says whether one ran.
func StopKept(ctx context.Context, dir string) (bool, error) {
	k, err := openKept(KeptOptions{Dir: dir})
	if err != nil {
		return false, fmt.Errorf("pgserver: stop: %w", err)
	}
	if _, err := os.Stat(k.data()); err != nil {
		return false, nil // never made: do not make its folder either
	}
	unlock, err := k.lock(ctx)
	if err != nil {
		return false, fmt.Errorf("pgserver: stop: %w", err)
	}
	defer unlock()
	pid := k.running()
	if pid == 0 {
		return false, nil
	}
	if err := stopFast(pid); err != nil {
		return false, fmt.Errorf("pgserver: stop process %d: %w", pid, err)
	}
	if !waitGone(pid, startPatience) {
		return false, fmt.Errorf("pgserver: stop process %d: it still runs after %s", pid, startPatience)
	}
	return true, nil
}

// kept is a kept server on disk, running or not.
type kept struct {
	dir string
	as  account
}

// keptState is what commands share. It is written before the data folder gets
// its name, so that there is no data folder without it.
type keptState struct {
	Port     int    `json:"port"`
	Password string `json:"password"`
}

func openKept(opts KeptOptions) (*kept, error) {
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	dir := opts.Dir
	if dir == "" {
		if dir, err = KeptDir(); err != nil {
			return nil, err
		}
	}
	return &kept{dir: dir, as: as}, nil
}

func (k *kept) home() string  { return filepath.Join(k.dir, "pg") } // belongs to the server's user
func (k *kept) data() string  { return filepath.Join(k.home(), "data") }
func (k *kept) log() string   { return filepath.Join(k.home(), "server.log") }
func (k *kept) state() string { return filepath.Join(k.dir, "server.json") }

// open is the whole way to a server that answers, under the lock.
func (k *kept) open(ctx context.Context) (Handle, error) {
	bins, err := FindBinaries(ctx)
	if err != nil {
		return Handle{}, err
	}
	if err := k.makeFolders(); err != nil {
		return Handle{}, err
	}
	unlock, err := k.lock(ctx)
	if err != nil {
		return Handle{}, err
	}
	defer unlock()

	state, err := k.makeData(ctx, bins[0])
	if err != nil {
		return Handle{}, err
	}
	how := "found running"
	if k.running() == 0 {
		how = "started"
		bin, err := k.matching(bins)
		if err != nil {
			return Handle{}, err
		}
		if state, err = k.start(ctx, bin, state); err != nil {
			return Handle{}, err
		}
	}
	version, err := k.await(ctx, state)
	if err != nil {
		return Handle{}, fmt.Errorf("port %d: %w; see %s", state.Port, redact(err, state.Password), k.log())
	}
	if err := ensureDatabase(ctx, localURL(state.Port, state.Password, "postgres"), keptDatabase); err != nil {
		return Handle{}, err
	}
	return Handle{
		URL:    localURL(state.Port, state.Password, keptDatabase),
		Detail: fmt.Sprintf("%s, version %s at 127.0.0.1:%d, data in %s", how, version, state.Port, k.data()),
	}, nil
}

// noFolder adds what helps when the folder of the kept server cannot be made or used.
func noFolder(err error) error {
	return fmt.Errorf("%w; set DAYBOOK_SERVER_DIR to a folder that you may write to, or %s", err, RunVariable)
}

func (k *kept) makeFolders() error {
	mode := os.FileMode(0o700)
	if k.as.drop {
		mode = 0o711 // the server's user passes through, and lists nothing
	}
	if err := os.MkdirAll(k.dir, mode); err != nil {
		return noFolder(err)
	}
	if err := k.as.canEnter(k.dir); err != nil {
		return noFolder(err)
	}
	if err := os.MkdirAll(k.home(), 0o700); err != nil {
		return noFolder(err)
	}
	if err := k.as.own(k.home()); err != nil {
		return noFolder(err)
	}
	return nil
}

// lock keeps other commands from looking or starting at the same time.
func (k *kept) lock(ctx context.Context) (func(), error) {
	f, err := os.OpenFile(filepath.Join(k.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, noFolder(err)
	}
	for !tryLock(f) {
		if !pause(ctx, 20*time.Millisecond) {
			return nil, errors.Join(fmt.Errorf("another command holds %s: %w", f.Name(), ctx.Err()), f.Close())
		}
	}
	return func() { _ = f.Close() }, nil
}

// running is the process id of the kept server, 0 when it does not run.
func (k *kept) running() int {
	if pid := readPID(k.data()); pid > 1 && alive(pid) && serves(pid, k.data()) {
		return pid
	}
	return 0
}

// makeData returns the state, after making the data folder at the first time.
func (k *kept) makeData(ctx context.Context, bin Binaries) (keptState, error) {
	if _, err := os.Stat(k.data()); err == nil {
		return k.readState()
	} else if !os.IsNotExist(err) {
		return keptState{}, err
	}
	port, err := freePort()
	if err != nil {
		return keptState{}, err
	}
	state := keptState{Port: port, Password: newPassword()}
	unfinished := k.data() + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return keptState{}, err
	}
	if err := initdb(ctx, bin, k.as, unfinished, state.Password, true); err != nil {
		return keptState{}, errors.Join(err, os.RemoveAll(unfinished))
	}
	if err := k.writeState(state); err != nil {
		return keptState{}, err
	}
	return state, os.Rename(unfinished, k.data())
}

func (k *kept) readState() (keptState, error) {
	var state keptState
	text, err := os.ReadFile(k.state())
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		return state, fmt.Errorf("the state of the server in %s cannot be read: %w; remove that folder to start anew (its data is lost)", k.dir, err)
	}
	return state, nil
}

func (k *kept) writeState(state keptState) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	unfinished := k.state() + ".new"
	if err := os.WriteFile(unfinished, text, 0o600); err != nil {
		return err
	}
	return os.Rename(unfinished, k.state())
}

// matching picks the binaries that can read the data folder.
func (k *kept) matching(bins []Binaries) (Binaries, error) {
	text, err := os.ReadFile(filepath.Join(k.data(), "PG_VERSION"))
	if err != nil {
		return Binaries{}, err
	}
	major, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	for _, b := range bins {
		if b.Major == major {
			return b, nil
		}
	}
	return Binaries{}, fmt.Errorf("the data in %s is of version %d, of which no binaries are installed; install them, or remove %s to start anew (its data is lost)", k.data(), major, k.dir)
}

// await connects until the server answers: another command may just have started
// it, or it recovers.
func (k *kept) await(ctx context.Context, state keptState) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		version, err := pingOnce(ctx, localURL(state.Port, state.Password, "postgres"))
		if err == nil || k.running() == 0 || !pause(ctx, 20*time.Millisecond) {
			return version, err
		}
	}
}

func ensureDatabase(ctx context.Context, admin, name string) error {
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var exists bool
	const find = `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`
	if err := conn.QueryRow(ctx, find, name).Scan(&exists); err != nil {
		return err
	}
	if exists {
		return nil
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	return err
}
