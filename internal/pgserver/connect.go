package pgserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// envPatience bounds how long a server named by a URL may take to answer.
const envPatience = 10 * time.Second

// FromEnv takes the server that the environment variable names. A variable that
// is set but whose server does not answer is an error, not a reason to look on:
// whoever set it means that server.
func FromEnv(variable string) Source {
	return Source{Name: variable, Open: func(ctx context.Context) (Handle, error) {
		text := os.Getenv(variable)
		if text == "" {
			return Handle{}, notHere("not set")
		}
		cfg, err := pgconn.ParseConfig(text)
		if err != nil {
			// The parser's text may quote the URL with its password.
			return Handle{}, errors.New("is set but is not a connection URL; want postgres://user:password@host:port/database")
		}
		where := fmt.Sprintf("%s/%s", net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))), cfg.Database)
		version, err := ping(ctx, text, envPatience)
		if err != nil {
			return Handle{}, fmt.Errorf("is set, but %s does not answer: %w; start that server or unset the variable", where, redact(err, cfg.Password))
		}
		return Handle{URL: text, Detail: fmt.Sprintf("version %s at %s", version, where)}, nil
	}}
}

// redact keeps a password out of a printed error, whoever put it there.
func redact(err error, password string) error {
	if password == "" {
		return err
	}
	clean := strings.ReplaceAll(err.Error(), password, "xxxxx")
	if clean == err.Error() {
		return err
	}
	return errors.New(clean)
}

// ping connects until a server answers, patience ends or an answer says that
// waiting will not help. It returns the server's version.
func ping(ctx context.Context, text string, patience time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		version, err := pingOnce(ctx, text)
		if err == nil {
			return version, nil
		}
		// 57P03: starting up or recovering, the only answer worth waiting for.
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "57P03" {
			return "", err
		}
		if !pause(ctx, 50*time.Millisecond) {
			return "", err
		}
	}
}

func pingOnce(ctx context.Context, text string) (string, error) {
	conn, err := pgx.Connect(ctx, text)
	if err != nil {
		return "", err
	}
	version := conn.PgConn().ParameterStatus("server_version")
	// The connection has done its work; how it ends does not matter.
	_ = conn.Close(ctx)
	return version, nil
}

// pause waits and says whether the context still lives.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// freePort asks the system for a port nobody listens on. Somebody may take it
// before the server does: callers try again with another.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port on 127.0.0.1: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

func portIsFree(port int) bool {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func newPassword() string {
	var b [18]byte
	_, _ = rand.Read(b[:]) // never fails: the runtime aborts instead
	return hex.EncodeToString(b[:])
}

func localURL(port int, password, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}
