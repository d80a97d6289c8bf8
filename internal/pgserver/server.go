package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Options describe a throw-away server. The zero value is a fast server for
// tests, from the preferred installation.
type Options struct {
	// Binaries is the installation to use. Default: the first of FindBinaries.
	Binaries Binaries
	// Fsync makes commits survive the end of the machine; crash tests set it.
	// Default: off.
	Fsync bool
	// Settings are added to the command line of postgres, over the settings of
	// this package, e.g. "wal_level": "logical". Default: none.
	Settings map[string]string
	// Dir is the folder in which the server's folder is made. Default: the
	// system's temporary folder, or another that the server's user can enter.
	Dir string
}

// Server is a throw-away PostgreSQL server. It is safe for concurrent use; each
// call holds the others back until it has ended.
type Server struct {
	bin      Binaries
	as       account
	opts     Options
	dir      string // holds everything, gone after Close
	port     int
	password string

	mu      sync.Mutex
	pid     int // 0: not running, as far as we know
	owner   *os.File
	watcher *watcher
	closed  bool
}

// startPatience bounds one start, recovery after a crash included.
const startPatience = 60 * time.Second

// Start makes a data folder and starts a server on it. It returns when a
// connection has been made, a *NotHereError when there are no binaries, and
// leaves nothing behind on any error. The server lives until Close or until the
// end of this process; ctx bounds the start only.
func Start(ctx context.Context, opts Options) (*Server, error) {
	s, err := start(ctx, opts)
	var no *NotHereError
	if err != nil && !errors.As(err, &no) {
		return nil, fmt.Errorf("pgserver: start: %w", err)
	}
	return s, err
}

func start(ctx context.Context, opts Options) (*Server, error) {
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	return startAs(ctx, as, opts)
}

func startAs(ctx context.Context, as account, opts Options) (_ *Server, err error) {
	if opts.Binaries.Dir == "" {
		all, err := FindBinaries(ctx)
		if err != nil {
			return nil, err
		}
		opts.Binaries = all[0]
	}
	base := opts.Dir
	if base == "" {
		if base, err = as.tempBase(); err != nil {
			return nil, err
		}
	} else if err := as.canEnter(base); err != nil {
		return nil, err
	}
	sweep(base, as, time.Now())

	s := &Server{bin: opts.Binaries, as: as, opts: opts, password: newPassword()}
	if s.dir, err = os.MkdirTemp(base, folderPrefix); err != nil {
		return nil, err
	}
	if s.watcher, err = startWatcher(watcherScript, s.dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) prepare(ctx context.Context) (err error) {
	if s.owner, err = os.OpenFile(filepath.Join(s.dir, ownerFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if !tryLock(s.owner) {
		return fmt.Errorf("%s is locked by another process", s.owner.Name())
	}
	if err := s.as.own(s.dir); err != nil {
		return err
	}
	if err := initdb(ctx, s.bin, s.as, s.data(), s.password, s.opts.Fsync); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		if s.port, err = freePort(); err != nil {
			return err
		}
		err := s.launch(ctx)
		var early *earlyExitError
		if err == nil || !errors.As(err, &early) || !early.portTaken() || attempt == 5 {
			return err
		}
	}
}

// URL is the connection URL of the server's own database "postgres", as its
// superuser, password included. It stays the same over Restart.
func (s *Server) URL() string { return localURL(s.port, s.password, "postgres") }

// Version is the version of the server, e.g. "15.18".
func (s *Server) Version() string { return s.bin.Version }

// Binaries is the installation of the server, which has its client programs too.
func (s *Server) Binaries() Binaries { return s.bin }

// Detail says in a few words what this server is, for people.
func (s *Server) Detail() string {
	return fmt.Sprintf("version %s from %s at 127.0.0.1:%d", s.bin.Version, s.bin.Dir, s.port)
}

// PID is the process id of the postmaster, 0 while the server does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// Kill ends the postmaster as kill -9 would, without a shutdown. Its other
// processes end by themselves when they notice. The data folder stays, for
// Restart.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid == 0 {
		return nil
	}
	if err := s.end(kill); err != nil {
		return fmt.Errorf("pgserver: kill: %w", err)
	}
	return nil
}

// Restart starts the server again on the same data folder and port, after Kill,
// after a signal sent to PID, or, when it still runs, after a shutdown that does
// not wait for clients. It returns when a connection has been made. ctx bounds it.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("pgserver: restart: the server is closed")
	}
	if s.pid != 0 {
		if err := s.end(stopFast); err != nil {
			return fmt.Errorf("pgserver: restart: %w", err)
		}
	}
	deadline := time.Now().Add(startPatience)
	for {
		err := s.launch(ctx)
		var early *earlyExitError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &early) && early.leftovers() && time.Now().Before(deadline) && pause(ctx, 50*time.Millisecond):
		default:
			return fmt.Errorf("pgserver: restart: %w", err)
		}
	}
}

// Close ends the server and removes its folder. A second call does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.pid != 0 {
		errs = append(errs, s.end(stopAtOnce))
	}
	errs = append(errs, removeAll(s.dir))
	if s.owner != nil {
		errs = append(errs, s.owner.Close())
	}
	errs = append(errs, s.watcher.dismiss())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("pgserver: close: %w", err)
	}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }
func (s *Server) log() string  { return filepath.Join(s.dir, "server.log") }

// removeAll tries again: processes of a killed server may still write while they
// end.
func removeAll(dir string) error {
	var err error
	for range 50 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		pause(context.Background(), 20*time.Millisecond)
	}
	return err
}
