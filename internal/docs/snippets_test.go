package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSnippets(t *testing.T) {
	t.Parallel()
	marked := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			where := fmt.Sprintf("%s:%d", p.name, b.line)
			switch {
			case !b.closed:
				t.Errorf("%s: the block is never closed", where)
			case b.from != "":
				marked++
				if fault := checkSnippet(root(t), b); fault != nil {
					t.Errorf("%s: %v", where, fault)
				}
			case b.lang == "go":
				if err := parses(b.text); err != nil {
					t.Errorf("%s: the block is no Go: %v", where, err)
				}
			}
		}
	}
	if marked < 5 {
		t.Errorf("only %d blocks name their source", marked)
	}
}

// checkSnippet compares a block with the region that it was cut from.
func checkSnippet(root string, b block) error {
	file, name, _ := strings.Cut(b.from, "#")
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return err
	}
	want, err := region(file, string(text), name)
	if err != nil {
		return fmt.Errorf("%s: %w", b.from, err)
	}
	if got := strings.TrimSpace(b.text); got != strings.TrimSpace(want) {
		return fmt.Errorf("differs from %s (- there, + here):\n%s", b.from, cmp.Diff(strings.TrimSpace(want), got))
	}
	return nil
}

// region cuts a named part out of a file; see the package comment.
func region(file, text, name string) (string, error) {
	switch {
	case name == "":
		return text, nil
	case strings.HasSuffix(file, ".sql"):
		return statement(text, name)
	case strings.HasPrefix(name, "Example"):
		return body(text, name)
	}
	var parts []string
	var open []string
	inside := false
	for l := range strings.Lines(text) {
		switch words := strings.Fields(l); {
		case len(words) == 3 && words[0] == "//" && words[1] == "region":
			if inside {
				return "", fmt.Errorf("region %q begins inside region %q", words[2], name)
			}
			inside = words[2] == name
		case len(words) >= 2 && words[0] == "//" && words[1] == "endregion":
			if inside {
				parts = append(parts, dedent(open))
			}
			inside, open = false, nil
		case inside:
			open = append(open, strings.TrimRight(l, "\n"))
		}
	}
	switch {
	case inside:
		return "", fmt.Errorf("region %q has no end", name)
	case len(parts) == 0:
		return "", fmt.Errorf("there is no region %q", name)
	}
	return strings.Join(parts, "\n\n"), nil
}

// statement returns the statement that creates a table. It ends with the line that closes its parenthesis.
func statement(text, table string) (string, error) {
	begin := "CREATE TABLE {schema}." + table + " ("
	_, rest, found := strings.Cut("\n"+text, "\n"+begin+"\n")
	if !found {
		return "", fmt.Errorf("there is no %s", begin)
	}
	whole := begin + "\n"
	for l := range strings.Lines(rest) {
		whole += l
		if end := strings.TrimRight(l, "\n"); strings.HasPrefix(end, ")") && strings.HasSuffix(end, ";") {
			return strings.TrimRight(whole, "\n"), nil
		}
	}
	return "", errors.New("the statement has no end")
}

var output = regexp.MustCompile(`(?i)^\s*// (unordered )?output:`)

// body returns the inside of a function, without the output that an example has.
func body(text, function string) (string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.ParseComments)
	if err != nil {
		return "", err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		inside := text[fset.Position(f.Body.Lbrace).Offset+1 : fset.Position(f.Body.Rbrace).Offset]
		var lines []string
		for l := range strings.Lines(strings.Trim(inside, "\n")) {
			if output.MatchString(l) {
				break
			}
			lines = append(lines, strings.TrimRight(l, "\n"))
		}
		return dedent(lines), nil
	}
	return "", fmt.Errorf("there is no function %s", function)
}

// dedent takes away the tabs that all lines share, and empty lines at both ends.
func dedent(lines []string) string {
	shared := -1
	for _, l := range lines {
		if tabs := len(l) - len(strings.TrimLeft(l, "\t")); strings.TrimSpace(l) != "" && (shared < 0 || tabs < shared) {
			shared = tabs
		}
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		if len(l) >= shared && shared > 0 {
			l = l[shared:]
		}
		out[i] = l
	}
	return strings.Trim(strings.Join(out, "\n"), "\n")
}

// parses reports whether text is a Go file, declarations, or statements.
func parses(text string) error {
	var faults []error
	for _, form := range []string{"%s", "package p\n%s", "package p\nfunc f() {\n%s\n}"} {
		_, err := parser.ParseFile(token.NewFileSet(), "", fmt.Sprintf(form, text), parser.SkipObjectResolution)
		if err == nil {
			return nil
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// The checks must see what they are for.
func TestSnippetsFindFaults(t *testing.T) {
	t.Parallel()
	const source = `package p

func f() {
	before()
	// region readme
	if ready {
		a()
	}
	// endregion
	between()
	// region readme
	b()
	// endregion readme
}

func ExampleF() {
	c()
	// Output:
	// x
}
`
	const script = "CREATE TABLE {schema}.a (\n  x int -- one; two\n);\nCREATE TABLE {schema}.b (\n  y int\n) WITH (fillfactor = 70);\n"
	for _, c := range []struct{ file, text, name, want string }{
		{"x.go", source, "readme", "if ready {\n\ta()\n}\n\nb()"},
		{"x.go", source, "ExampleF", "c()"},
		{"x.sql", script, "a", "CREATE TABLE {schema}.a (\n  x int -- one; two\n);"},
		{"x.sql", script, "b", "CREATE TABLE {schema}.b (\n  y int\n) WITH (fillfactor = 70);"},
	} {
		got, err := region(c.file, c.text, c.name)
		if err != nil || got != c.want {
			t.Errorf("%s#%s: %q, %v; want %q", c.file, c.name, got, err, c.want)
		}
	}
	for _, c := range []struct{ file, text, name string }{
		{"x.go", source, "other"},
		{"x.go", source, "ExampleG"},
		{"x.go", "// region open\n", "open"},
		{"x.sql", script, "c"},
	} {
		if got, err := region(c.file, c.text, c.name); err == nil {
			t.Errorf("%s#%s: %q, want an error", c.file, c.name, got)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	const text = "<!-- from: x.go#ExampleF -->\n\n```go\nc()\n```\n\n<!-- from: x.go#ExampleF -->\n```go\nd()\n```\n\n<!-- from: y.go -->\n```go\n```\n"
	blocks := parse("x.md", text).blocks
	if len(blocks) != 3 {
		t.Fatalf("%d blocks, want 3", len(blocks))
	}
	for i, fault := range []bool{false, true, true} {
		if err := checkSnippet(dir, blocks[i]); (err != nil) != fault {
			t.Errorf("block %d: %v, want a fault: %v", i, err, fault)
		}
	}
	for text, fault := range map[string]bool{
		"package p": false, "type T struct{}": false, "x, err := f()": false, "x := := 1": true, "f(…)": true,
	} {
		if err := parses(text); (err != nil) != fault {
			t.Errorf("%q: %v, want a fault: %v", text, err, fault)
		}
	}
}
