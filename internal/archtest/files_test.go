package archtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	maxLines     = 400 // of a production file
	maxTestLines = 700
)

// unwanted are texts that no file may contain. They are put together here, so
// that this file does not contain them.
var unwanted = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`/wo` + `rk/`), "a path of one machine"},
	{regexp.MustCompile(`\b[tb]\.Sk` + `ip(f|Now)?\(`), "a test that does not run proves nothing: let it fail, and say what it needs"},
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`), "finish it, or file it"},
}

// textual are the files whose text is ours; data may contain what it likes.
func textual(path string) bool {
	switch filepath.Ext(path) {
	case ".go", ".md", ".sql", ".sh", ".yml", ".yaml", ".mod":
		return true
	}
	switch filepath.Base(path) {
	case "Makefile", "run", ".gitignore", ".gitattributes":
		return true
	}
	return false
}

func TestFiles(t *testing.T) {
	t.Parallel()
	seen := 0
	err := filepath.WalkDir(root(t), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if name := e.Name(); name == ".git" || name == "testdata" || name == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		if !textual(path) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		rel, err := filepath.Rel(root(t), path)
		if err != nil {
			return err
		}
		for _, fault := range checkFile(filepath.ToSlash(rel), text) {
			t.Error(fault)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Errorf("only %d files were read", seen)
	}
}

// checkFile returns the faults of one file.
func checkFile(path string, text []byte) []string {
	var faults []string
	if strings.HasSuffix(path, ".go") {
		limit := maxLines
		if strings.HasSuffix(path, "_test.go") || forTests(filepath.Dir(path)) {
			limit = maxTestLines
		}
		if n := bytes.Count(text, []byte("\n")); n >= limit {
			faults = append(faults, fmt.Sprintf("%s has %d lines, and must stay under %d: split it by topic", path, n, limit))
		}
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, u := range unwanted {
			if m := u.pattern.FindString(line); m != "" {
				faults = append(faults, fmt.Sprintf("%s:%d: %q: %s", path, i+1, m, u.why))
			}
		}
	}
	return faults
}

func TestCheckFileFindsFaults(t *testing.T) {
	t.Parallel()
	long := func(n int) []byte { return bytes.Repeat([]byte("x\n"), n) }
	for _, c := range []struct {
		path string
		text []byte
		want int
	}{
		{"a/b.go", long(maxLines - 1), 0},
		{"a/b.go", long(maxLines), 1},
		{"a/b_test.go", long(maxTestLines - 1), 0},
		{"a/b_test.go", long(maxTestLines), 1},
		{"a/atest/b.go", long(maxTestLines), 1},
		{"docs/x.md", long(maxTestLines), 0},
		{"a/b.go", []byte("// see /wo" + "rk/notes\n"), 1},
		{"a/b_test.go", []byte("\tt.Sk" + "ipf(\"later\")\n"), 1},
		{"a/b.go", []byte("// TO" + "DO: later\n"), 1},
		{"a/b.go", []byte("FOR UPDATE SKIP LOCKED; network/x; Todo\n"), 0},
	} {
		if got := checkFile(c.path, c.text); len(got) != c.want {
			t.Errorf("%s: %d faults, want %d: %q", c.path, len(got), c.want, got)
		}
	}
}
