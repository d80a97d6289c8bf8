package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	containerImage = "postgres:17-alpine"
	// enginePatience is how long a container engine may take to answer at all.
	enginePatience = 3 * time.Second
	// containerPatience bounds pulling the image and starting the container.
	containerPatience = 5 * time.Minute
)

// Container starts a throw-away server in a container of Docker or Podman, by
// their command line. It is removed when the handle is closed or this process
// ends.
func Container() Source {
	return Source{Name: "container engine", Open: func(ctx context.Context) (Handle, error) {
		engine, err := findEngine(ctx)
		if err != nil {
			return Handle{}, err
		}
		name := "daybook-test-" + newPassword()[:12]
		remove := []string{engine, "rm", "-f", "-v", name}
		w, err := startWatcher(containerScript, remove...)
		if err != nil {
			return Handle{}, err
		}
		closer := func() error {
			out, err := exec.Command(remove[0], remove[1:]...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("remove container %s: %w: %s", name, err, tail(out))
			}
			return errors.Join(err, w.dismiss())
		}
		h, err := runContainer(ctx, engine, name, newPassword(), "postgres", "--rm")
		if err != nil {
			return Handle{}, errors.Join(err, closer())
		}
		h.Close = closer
		return h, nil
	}}
}

// containerScript removes the container when the pipe ends without "closed".
const containerScript = `
trap '' HUP INT TERM QUIT
read -r line
[ "$line" = closed ] || exec "$@"
`

// KeptContainer is the kept server in a container with a volume of its own; both
// stay when the program ends.
func KeptContainer(opts KeptOptions) Source {
	return Source{Name: "container engine", Open: func(ctx context.Context) (Handle, error) {
		engine, err := findEngine(ctx)
		if err != nil {
			return Handle{}, err
		}
		k := &kept{dir: opts.Dir}
		if k.dir == "" {
			if k.dir, err = KeptDir(); err != nil {
				return Handle{}, err
			}
		}
		if err := os.MkdirAll(k.dir, 0o700); err != nil {
			return Handle{}, noFolder(err)
		}
		password, err := k.containerPassword()
		if err != nil {
			return Handle{}, err
		}
		name := "daybook-dev-" + strconv.Itoa(os.Geteuid())
		if _, err := engineRun(ctx, engine, nil, "start", name); err == nil {
			return awaitContainer(ctx, engine, name, password, keptDatabase)
		}
		return runContainer(ctx, engine, name, password, keptDatabase, "-v", name+":/var/lib/postgresql/data")
	}}
}

// containerPassword is made once: the volume remembers the first one.
func (k *kept) containerPassword() (string, error) {
	file := filepath.Join(k.dir, "container.password")
	text, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !os.IsNotExist(err) {
		return "", err
	}
	password := newPassword()
	return password, os.WriteFile(file, []byte(password+"\n"), 0o600)
}

// findEngine returns the first engine that answers in time.
func findEngine(ctx context.Context) (string, error) {
	var refused []string
	for _, name := range []string{"docker", "podman"} {
		path, err := exec.LookPath(name)
		if err != nil {
			refused = append(refused, name+" is not installed")
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, enginePatience)
		_, err = engineRun(ctx, path, nil, "ps", "-q")
		late := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			return path, nil
		case late:
			refused = append(refused, fmt.Sprintf("%s does not answer within %s", name, enginePatience))
		default:
			refused = append(refused, name+" is installed, but its engine does not run")
		}
	}
	return "", notHere("%s", strings.Join(refused, ", "))
}

// engineRun runs the engine's command line. The password goes by environment:
// arguments can be read by every user.
func engineRun(ctx context.Context, engine string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, engine, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(engine), args[0], err, tail(out))
	}
	return string(out), nil
}

func runContainer(ctx context.Context, engine, name, password, database string, flags ...string) (Handle, error) {
	ctx, cancel := context.WithTimeout(ctx, containerPatience)
	defer cancel()
	args := append([]string{"run", "-d", "--name", name, "-p", "127.0.0.1::5432",
		"-e", "POSTGRES_PASSWORD", "-e", "POSTGRES_DB=" + database}, flags...)
	args = append(args, containerImage, "-c", "max_connections=300", "-c", "max_prepared_transactions=100")
	if _, err := engineRun(ctx, engine, []string{"POSTGRES_PASSWORD=" + password}, args...); err != nil {
		return Handle{}, err
	}
	return awaitContainer(ctx, engine, name, password, database)
}

// awaitContainer asks for the port and connects until the server answers. The
// image starts a server twice at first, the first time without network.
func awaitContainer(ctx context.Context, engine, name, password, database string) (Handle, error) {
	out, err := engineRun(ctx, engine, nil, "port", name, "5432/tcp")
	if err != nil {
		return Handle{}, err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	_, text, err := net.SplitHostPort(first)
	if err != nil {
		return Handle{}, fmt.Errorf("%s port %s: %q is no address", filepath.Base(engine), name, first)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return Handle{}, fmt.Errorf("%s port %s: %q is no port", filepath.Base(engine), name, text)
	}
	u := localURL(port, password, database)
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		version, err := pingOnce(ctx, u)
		if err == nil {
			return Handle{URL: u, Detail: fmt.Sprintf("%s container %s, version %s at 127.0.0.1:%d", filepath.Base(engine), name, version, port)}, nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return Handle{}, fmt.Errorf("container %s: no connection to 127.0.0.1:%d: %w", name, port, redact(err, password))
		}
	}
}
