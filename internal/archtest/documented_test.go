package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Every exported name of a package that users import is documented, methods of exported types included.
func TestExportedNamesAreDocumented(t *testing.T) {
	t.Parallel()
	seen := 0
	err := filepath.WalkDir(root(t), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			switch e.Name() {
			case ".git", "testdata", "internal", "examples", "cmd", "bench":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		seen++
		bare, err := undocumented(path, nil)
		for _, fault := range bare {
			t.Error(fault)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 50 {
		t.Errorf("only %d files were read", seen)
	}
}

// undocumented returns the place of each exported name of a file that has no comment. Names of a group may share one.
func undocumented(path string, text any) ([]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var bare []string
	report := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		for _, d := range docs {
			if d != nil {
				return
			}
		}
		if name.IsExported() {
			bare = append(bare, files.Position(name.Pos()).String()+": "+name.Name+" is exported and has no comment")
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || receiverExported(d.Recv.List[0].Type) {
				report(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					report(s.Name, d.Doc, s.Doc, s.Comment)
				case *ast.ValueSpec:
					report(s.Names[0], d.Doc, s.Doc, s.Comment)
				}
			}
		}
	}
	return bare, nil
}

func receiverExported(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverExported(e.X)
	case *ast.IndexExpr:
		return receiverExported(e.X)
	case *ast.IndexListExpr:
		return receiverExported(e.X)
	case *ast.Ident:
		return e.IsExported()
	}
	return false
}

func TestUndocumentedFindsFaults(t *testing.T) {
	t.Parallel()
	const text = `package p

type Bare struct{}

func (*Bare) Method() {}

func (Generic[A, B]) Method() {}

// Generic is documented.
type Generic[A, B any] struct{}

type hidden struct{}

func (hidden) Error() string { return "" }

// Both share a comment.
var (
	One = 1
	Two = 2
)

const Three = 3 // commented
const Four = 4

func Function() {}
`
	bare, err := undocumented("p.go", text)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range bare {
		names = append(names, strings.Fields(b)[1])
	}
	if got := strings.Join(names, " "); got != "Bare Method Method Four Function" {
		t.Errorf("found %s:\n%s", got, strings.Join(bare, "\n"))
	}
}
