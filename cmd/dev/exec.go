package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// stopPatience is how long a command may take to end after Ctrl-C.
const stopPatience = 15 * time.Second

// command runs a program in a folder of the repository, with more environment,
// its output going where ours goes. When ctx ends, the program and all that it
// started are interrupted, and killed when they do not end.
func (d *dev) command(ctx context.Context, dir string, env []string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = filepath.Join(d.root, dir)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = d.out, d.errOut
	cmd.WaitDelay = stopPatience
	group(cmd)
	err := cmd.Run()
	if ctx.Err() != nil {
		endGroup(cmd)
	}
	return exitCode(argv, err)
}

// exitCode turns the end of a command into ours.
func exitCode(argv []string, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return &exitError{exit.ExitCode()}
	case errors.As(err, &exit):
		return fmt.Errorf("dev: %s: %w", strings.Join(argv, " "), err) // ended by a signal
	default:
		return fmt.Errorf("dev: %s: %w", argv[0], err)
	}
}

// moduleRoot is the folder of the main module, whatever folder we are called in.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/daybook-go/daybook").Output()
	if err != nil {
		return "", errors.New("dev: must be called inside the Daybook repository")
	}
	return string(bytes.TrimSpace(out)), nil
}

// modules lists the folders of all modules of the repository, "." first.
func modules(root string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		if e.IsDir() && path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
			return filepath.SkipDir
		}
		if name == "go.mod" && !e.IsDir() {
			rel, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			dirs = append(dirs, rel)
		}
		return nil
	})
	return dirs, err
}
