package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// page is a Markdown file.
type page struct {
	name   string // path from the root of the repository, with slashes
	blocks []block
	prose  []line // what is outside of blocks
}

// block is a fenced code block.
type block struct {
	line   int // of the fence, from 1
	lang   string
	from   string // "path#region" of the marker above, or empty
	text   string
	closed bool
}

type line struct {
	number int
	text   string
}

var marker = regexp.MustCompile(`^<!-- from: (\S+) -->$`)

func parse(name, text string) page {
	p := page{name: name}
	from := ""
	var open *block
	for i, l := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(l), "```")
		switch {
		case open != nil && fence:
			open.closed = true
			p.blocks = append(p.blocks, *open)
			open = nil
		case open != nil:
			open.text += l + "\n"
		case fence:
			lang := strings.TrimPrefix(strings.TrimSpace(l), "```")
			open = &block{line: i + 1, lang: lang, from: from}
			from = ""
		default:
			p.prose = append(p.prose, line{i + 1, l})
			if m := marker.FindStringSubmatch(strings.TrimSpace(l)); m != nil {
				from = m[1]
			} else if strings.TrimSpace(l) != "" {
				from = ""
			}
		}
	}
	if open != nil {
		p.blocks = append(p.blocks, *open)
	}
	return p
}

func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// files returns the files of the repository with that ending, test data aside.
func files(t testing.TB, ending string) []string {
	t.Helper()
	dir := root(t)
	var names []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != dir && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata" || e.Name() == "node_modules"):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, ending):
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		names = append(names, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func pages(t testing.TB) []page {
	t.Helper()
	var all []page
	for _, name := range files(t, ".md") {
		all = append(all, parse(name, read(t, name)))
	}
	if len(all) < 10 {
		t.Fatalf("only %d pages were found", len(all))
	}
	return all
}

var links = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinks(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, p := range pages(t) {
		for _, l := range p.prose {
			for _, m := range links.FindAllStringSubmatch(l.text, -1) {
				seen++
				if fault := checkLink(t, p.name, m[1]); fault != "" {
					t.Errorf("%s:%d: link %q %s", p.name, l.number, m[1], fault)
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d links were found", seen)
	}
}

// checkLink returns what is wrong with a link, or "". Links into the web are not followed.
func checkLink(t testing.TB, from, target string) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	file, anchor, _ := strings.Cut(target, "#")
	name := from
	if file != "" {
		name = filepath.ToSlash(filepath.Join(filepath.Dir(from), file))
	}
	info, err := os.Stat(filepath.Join(root(t), filepath.FromSlash(name)))
	switch {
	case err != nil:
		return "leads to no file"
	case anchor == "" || info.IsDir() || !strings.HasSuffix(name, ".md"):
		return ""
	}
	for _, l := range parse(name, read(t, name)).prose {
		if title, ok := heading(l.text); ok && slug(title) == anchor {
			return ""
		}
	}
	return "names no heading there"
}

func heading(text string) (title string, ok bool) {
	rest := strings.TrimLeft(text, "#")
	return strings.TrimSpace(rest), rest != text && strings.HasPrefix(rest, " ")
}

// slug is the anchor that forges make of a heading.
func slug(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

func TestCheckLinkFindsFaults(t *testing.T) {
	t.Parallel()
	for target, fault := range map[string]bool{
		"../CONTRIBUTING.md":              false,
		"../CONTRIBUTING.md#the-database": false,
		"https://example.org/nothing":     false,
		"adr":                             false,
		"nothing.md":                      true,
		"../CONTRIBUTING.md#nothing":      true,
	} {
		if got := checkLink(t, "docs/README.md", target); (got != "") != fault {
			t.Errorf("link %q: %q, want a fault: %v", target, got, fault)
		}
	}
}
