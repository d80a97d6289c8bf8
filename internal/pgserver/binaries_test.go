package pgserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func installation(t *testing.T, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, p := range programs {
		if err := os.WriteFile(filepath.Join(dir, p), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPickBinaries(t *testing.T) {
	t.Parallel()
	all := []string{"initdb", "postgres", "pg_ctl"}
	client, old, beta, good := installation(t, "pg_ctl"), installation(t, all...), installation(t, all...), installation(t, all...)
	version := func(_ context.Context, postgres string) (string, error) {
		return map[string]string{
			old:  "postgres (PostgreSQL) 14.9\n",
			beta: "postgres (PostgreSQL) 18beta2\n",
			good: "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n",
		}[filepath.Dir(postgres)], nil
	}

	got, err := pickBinaries(t.Context(), []string{"/nowhere", client, old, good, good, beta}, version)
	if err != nil {
		t.Fatal(err)
	}
	want := []Binaries{{good, "15.18", 15}, {beta, "18beta2", 18}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}

	var no *NotHereError
	if _, err := pickBinaries(t.Context(), []string{client, old}, version); !errors.As(err, &no) || !strings.Contains(no.Reason, "is version 14.9") {
		t.Errorf("old only: got %v", err)
	}
	if _, err := pickBinaries(t.Context(), []string{client}, version); !errors.As(err, &no) || !strings.Contains(no.Reason, "not in PATH") {
		t.Errorf("none: got %v", err)
	}
}

func TestCleanEnvKeepsSettingsOut(t *testing.T) {
	t.Setenv("PGPORT", "1")
	t.Setenv("LC_MESSAGES", "de_DE.UTF-8")
	t.Setenv("DAYBOOK_DATABASE_URL", "postgres://u:secret@h/d")
	t.Setenv("KEPT_ANYWAY", "1")
	env := strings.Join(cleanEnv("/home"), "\n")
	for _, bad := range []string{"PGPORT", "LC_MESSAGES", "secret"} {
		if strings.Contains(env, bad) {
			t.Errorf("%s is passed on", bad)
		}
	}
	if !strings.Contains(env, "KEPT_ANYWAY=1") || !strings.Contains(env, "HOME=/home") {
		t.Errorf("lost what is needed: %s", env)
	}
}

func TestAccountKeepsOutOfClosedFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	other := account{uid: os.Getuid() + 12345, drop: true}
	if err := other.canEnter(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a closed folder was accepted: %v", err)
	}
	if err := (account{}).canEnter(dir); err != nil {
		t.Errorf("the caller's own account: %v", err)
	}
}
