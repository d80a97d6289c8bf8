package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir                    string
	Imports, TestImports, XTestImports []string
	Deps                               []string
	Error                              *struct{ Err string }
}

// name is the path inside the module, "" for the root.
func (p listed) name() string {
	return strings.TrimSuffix(strings.TrimPrefix(p.ImportPath+"/", module), "/")
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,Deps,Error", "./...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			if len(all) == 0 {
				t.Fatal("go list lists nothing")
			}
			return all
		case err != nil:
			t.Fatal(err)
		}
		if p.Error != nil {
			t.Errorf("%s: %s", p.ImportPath, p.Error.Err)
		}
		all = append(all, p)
	}
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		for _, fault := range check(p) {
			t.Error(fault)
		}
	}
}

// check returns the faults of one package.
func check(p listed) []string {
	name := p.name()
	var faults []string
	fault := func(parts ...string) {
		faults = append(faults, display(name)+" "+strings.Join(parts, ""))
	}
	r, ok := ruleFor(name)
	if !ok {
		fault("has no rule: add one to internal/archtest/rules.go")
	}
	for _, path := range p.Imports {
		if ok && !standard(path) && !r.allows(path) {
			fault("must not import ", path)
		}
	}
	for _, o := range ownedBy {
		owned := func(paths []string, by ...string) {
			for _, path := range paths {
				if within(path, o.prefix) && !slices.ContainsFunc(by, func(pkg string) bool { return within(name, pkg) }) {
					fault("must not import ", path, ": only ", strings.Join(by, " and "), " may")
				}
			}
		}
		owned(p.Imports, o.pkgs...)
		owned(append(p.TestImports, p.XTestImports...), append(o.tests, o.pkgs...)...)
	}
	for _, path := range p.Deps {
		if path == "testing" && !forTests(name) {
			fault("reaches testing, which is for packages whose name ends in test")
		}
		for _, n := range neverReach {
			if n.pkg == name && within(path, n.prefix) {
				fault("must never reach ", path, ": ", n.why)
			}
		}
	}
	return faults
}

func display(name string) string {
	if name == "" {
		return "the root package"
	}
	return name
}

// The checks must see what they are for.
func TestCheckFindsFaults(t *testing.T) {
	t.Parallel()
	for text, p := range map[string]listed{
		"has no rule":                             {ImportPath: module + "novelty"},
		"must not import github.com/jackc/pgx":    {ImportPath: module + "aggregate", Imports: []string{"github.com/jackc/pgx/v5/pgconn"}},
		"must not import github.com/spf13/cobra":  {ImportPath: module + "eventstore", Imports: []string{"github.com/spf13/cobra"}},
		"must not import " + module + "aggregate": {ImportPath: module + "saga", Imports: []string{module + "aggregate"}},
		"must never reach github.com/jackc":       {ImportPath: module + "snapshot", Deps: []string{"github.com/jackc/pgx/v5"}},
		"reaches testing":                         {ImportPath: module + "projection", Deps: []string{"testing"}},
		"only outbox and outbox/inbox and examples and bench and integration may": {ImportPath: module + "projection", Imports: []string{"github.com/ThreeDotsLabs/watermill/message"}},
		"only projection and outbox": {ImportPath: module + "aggregate", XTestImports: []string{"github.com/ThreeDotsLabs/watermill/message"}},
		"postgrestest may":           {ImportPath: module + "cmd/dev", Imports: []string{testcontainers + "/wait"}},
	} {
		if got := strings.Join(check(p), "\n"); !strings.Contains(got, text) {
			t.Errorf("%s: want %q, got %q", p.ImportPath, text, got)
		}
	}
	for _, p := range []listed{
		{ImportPath: strings.TrimSuffix(module, "/"), Imports: []string{"fmt"}},
		{ImportPath: module + "eventstore", Imports: []string{"context", "github.com/google/uuid"}},
		{ImportPath: module + "examples/ledger", Imports: []string{module + "internal/pgserver", module + "examples/ledger/journal", "github.com/spf13/cobra"}},
		{ImportPath: module + "saga/schedule", Imports: []string{module + "saga", "github.com/adhocore/gronx"}},
		{ImportPath: module + "outbox", Imports: []string{"github.com/ThreeDotsLabs/watermill/message", "github.com/jackc/pgx/v5"}},
		{ImportPath: module + "outbox/outboxtest", Imports: []string{module + "outbox", "github.com/ThreeDotsLabs/watermill/message"}},
		{ImportPath: module + "examples/ledger", Imports: []string{"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"}},
		{ImportPath: module + "eventstore/eventstoretest", Imports: []string{"testing"}, Deps: []string{"testing"}},
	} {
		if got := check(p); len(got) > 0 {
			t.Errorf("%s: %q", p.ImportPath, got)
		}
	}
}
