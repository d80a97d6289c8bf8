package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// functions holds the test functions of the tree by folder, and the text of the Go files of each folder.
type functions struct {
	byFolder map[string]map[string]bool
	texts    map[string]string
}

func testFunctions(t testing.TB) functions {
	t.Helper()
	f := functions{byFolder: map[string]map[string]bool{}, texts: map[string]string{}}
	for _, name := range files(t, ".go") {
		folder := path.Dir(name)
		text := read(t, name)
		f.texts[folder] += text
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Base(name), text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				if f.byFolder[folder] == nil {
					f.byFolder[folder] = map[string]bool{}
				}
				f.byFolder[folder][fn.Name.Name] = true
			}
		}
	}
	return f
}

var (
	spans    = regexp.MustCompile("`([^`]+)`")
	testName = regexp.MustCompile(`^(?:([a-z0-9/]+)\.)?((?:Test|Fuzz|Benchmark|Example)[A-Z_]\w*)(?:/(.+))?$`)
)

// suiteFolder has the topics that every engine runs as subtests.
const suiteFolder = "eventstore/eventstoretest"

// missing says what a name in a page lacks, or "". ok is false for a text that names no test.
func (f functions) missing(name string) (fault string, ok bool) {
	m := testName.FindStringSubmatch(name)
	if m == nil {
		return "", false
	}
	folder, function, sub := m[1], m[2], m[3]
	found := false
	for in, names := range f.byFolder {
		if (folder == "" || in == folder) && names[function] {
			found = true
			if sub == "" || strings.Contains(f.texts[in], `"`+sub+`"`) || strings.Contains(f.texts[suiteFolder], `"`+sub+`"`) {
				return "", true
			}
		}
	}
	if found {
		return "has no part of that name", true
	}
	return "does not exist", true
}

// Pages name tests as `TestName`, `folder.TestName` or `folder.TestName/part`.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	all := testFunctions(t)
	seen := 0
	for _, p := range pages(t) {
		for _, l := range p.prose {
			for _, span := range spans.FindAllStringSubmatch(l.text, -1) {
				fault, ok := all.missing(span[1])
				if !ok {
					continue
				}
				seen++
				if fault != "" {
					t.Errorf("%s:%d: %s %s", p.name, l.number, span[1], fault)
				}
			}
		}
	}
	if seen < 40 {
		t.Errorf("only %d tests are named", seen)
	}
	for name, fault := range map[string]bool{
		"internal/docs.TestNamedTestsExist": false,
		"TestNamedTestsExist":               false,
		"eventstore.TestNamedTestsExist":    true,
		"TestThatNobodyWrote":               true,
		"TestNamedTestsExist/absent part":   true,
		"eventstore/memory.TestStore/Races": false,
	} {
		if got, ok := all.missing(name); !ok || (got != "") != fault {
			t.Errorf("%s: %q, want a fault: %v", name, got, fault)
		}
	}
}

// Every promise names what proves it.
func TestEveryGuaranteeNamesATest(t *testing.T) {
	t.Parallel()
	all := testFunctions(t)
	rows := 0
	for _, l := range parse("", read(t, "docs/guarantees.md")).prose {
		text := strings.TrimSpace(l.text)
		if !strings.HasPrefix(text, "|") || strings.HasPrefix(text, "|--") || strings.HasPrefix(text, "| feature ") || strings.HasPrefix(text, "| promise ") {
			continue
		}
		rows++
		named := false
		for _, span := range spans.FindAllStringSubmatch(text, -1) {
			_, ok := all.missing(span[1])
			named = named || ok
		}
		if !named {
			t.Errorf("docs/guarantees.md:%d: the row names no test", l.number)
		}
	}
	if rows < 15 {
		t.Errorf("only %d rows were found", rows)
	}
}
