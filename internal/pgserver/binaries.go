package pgserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
)

// minMajor is the oldest PostgreSQL that Daybook runs on.
const minMajor = 15

// Binaries are the programs of one PostgreSQL installation.
type Binaries struct {
	// Dir holds initdb, postgres and pg_ctl.
	Dir string
	// Version is what postgres says of itself, e.g. "15.18".
	Version string
	// Major is the major version, e.g. 15.
	Major int
}

func (b Binaries) path(program string) string { return filepath.Join(b.Dir, program) }

var versionText = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// FindBinaries returns the installations of version 15 or newer: first the one
// in PATH, then that of pg_config, then the others with the newest first. The
// error is a *NotHereError and says what was found instead.
func FindBinaries(ctx context.Context) ([]Binaries, error) {
	return pickBinaries(ctx, binaryDirs(ctx), readVersion)
}

func pickBinaries(ctx context.Context, dirs []string, version func(context.Context, string) (string, error)) ([]Binaries, error) {
	var found []Binaries
	var refused []string
	seen := map[string]bool{}
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		if missing := missingProgram(dir); missing != "" {
			continue
		}
		text, err := version(ctx, filepath.Join(dir, "postgres"))
		if err != nil {
			refused = append(refused, fmt.Sprintf("%s does not run (%v)", dir, err))
			continue
		}
		m := versionText.FindStringSubmatch(text)
		if m == nil {
			refused = append(refused, fmt.Sprintf("%s does not tell its version", dir))
			continue
		}
		major, _ := strconv.Atoi(m[2])
		if major < minMajor {
			refused = append(refused, fmt.Sprintf("%s is version %s", dir, m[1]))
			continue
		}
		found = append(found, Binaries{Dir: dir, Version: m[1], Major: major})
	}
	if len(found) > 0 {
		return found, nil
	}
	if len(refused) > 0 {
		return nil, notHere("none of version %d or newer: %s", minMajor, strings.Join(refused, ", "))
	}
	return nil, notHere("initdb, postgres and pg_ctl are not in PATH, pg_config's folder, /usr/lib/postgresql or Homebrew's folders")
}

func missingProgram(dir string) string {
	for _, p := range []string{"initdb", "postgres", "pg_ctl"} {
		if _, err := exec.LookPath(filepath.Join(dir, p)); err != nil {
			return p
		}
	}
	return ""
}

func readVersion(ctx context.Context, postgres string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, postgres, "--version").Output()
	return string(out), err
}

// binaryDirs lists the folders to look into, in order of preference.
func binaryDirs(ctx context.Context) []string {
	var dirs []string
	if p, err := exec.LookPath("postgres"); err == nil {
		// A link in PATH leads to the folder that has all of the programs.
		if real, err := filepath.EvalSymlinks(p); err == nil {
			dirs = append(dirs, filepath.Dir(real), filepath.Dir(p))
		}
	}
	if p, err := exec.LookPath("pg_config"); err == nil {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if out, err := exec.CommandContext(ctx, p, "--bindir").Output(); err == nil {
			dirs = append(dirs, strings.TrimSpace(string(out)))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/usr/libexec/postgresql*",
		"/usr/local/pgsql/bin",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	} {
		matches, _ := filepath.Glob(pattern) // the patterns are constants and well formed
		sort.Slice(matches, func(i, j int) bool { return folderNumber(matches[i]) > folderNumber(matches[j]) })
		dirs = append(dirs, matches...)
	}
	return dirs
}

var digits = regexp.MustCompile(`\d+`)

func folderNumber(path string) int {
	n, _ := strconv.Atoi(digits.FindString(path))
	return n
}

// cleanEnv is the environment for PostgreSQL's programs: none of the caller's
// PG… settings may reach a server of our own.
func cleanEnv(home string) []string {
	env := []string{"LC_ALL=C", "HOME=" + home}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(name, "PG"), strings.HasPrefix(name, "DAYBOOK_"), strings.HasPrefix(name, "LC_"), name == "LANG", name == "HOME":
		default:
			env = append(env, kv)
		}
	}
	return env
}
