package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/testscale"
)

// readModels is every table of the read models, as bytes.
func readModels(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	query := func(sql string) []string {
		rows, err := pool.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return texts
	}
	var dump strings.Builder
	tables := query("SELECT tablename::text FROM pg_tables WHERE schemaname = 'readmodels' ORDER BY 1")
	for _, table := range tables {
		fmt.Fprintf(&dump, "%s\n", table)
		for _, row := range query(fmt.Sprintf(`SELECT t::text COLLATE "C" FROM readmodels.%s AS t ORDER BY 1`, pgx.Identifier{table}.Sanitize())) {
			dump.WriteString(row + "\n")
		}
	}
	if len(tables) != 3 || strings.Count(dump.String(), "\n") < 30 {
		t.Fatalf("the read models are\n%s", &dump)
	}
	return dump.String()
}

// sameReadModels compares byte for byte.
func sameReadModels(t *testing.T, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	have := make(map[string]bool)
	for row := range strings.Lines(want) {
		have[row] = true
	}
	for row := range strings.Lines(got) {
		if !have[row] {
			t.Errorf("the read models have a row that the others have not: %s", row)
		}
	}
	t.Error("the read models differ")
}

func TestBothSourcesMakeTheSameReadModels(t *testing.T) {
	t.Parallel()
	journals := samples(t)
	if testscale.Factor() < 1 {
		journals = journals[:1]
	}
	for _, want := range journals {
		t.Run(filepath.Base(want.journal), func(t *testing.T) {
			t.Parallel()
			dumps := map[string]string{}
			for _, from := range []string{"stream", "log"} {
				s, pool := newShell(t)
				out := s.must(t, "import", "--source", from, want.journal)
				if strings.Contains(out, "to published") != (from == "stream") {
					t.Errorf("from the %s the import says\n%s", from, out)
				}
				dumps[from] = readModels(t, pool)
				audit(t, s, pool, want.journal)
			}
			sameReadModels(t, dumps["stream"], dumps["log"])
		})
	}
}

func TestUnknownSource(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"import", "work"} {
		args := []string{command, "--source", "kafka"}
		if command == "import" {
			args = append(args, ownSample(t).journal)
		}
		if r := (shell{url: "postgres://127.0.0.1:1/none"}).run(t, args...); r.code != 1 || !strings.Contains(r.notes, "use stream or log") {
			t.Errorf("%s: %d %s", command, r.code, r.notes)
		}
	}
}

// The source changes again and again while a journal is imported, once by an end in good order, once by a crash.
func TestChangeOfSource(t *testing.T) {
	t.Parallel()
	path := longJournal(t)
	total := eventsOf(t, path)
	reference, pool := newShell(t)
	reference.must(t, "import", "--source", "log", path)
	want := readModels(t, pool)

	s, pool := newShell(t)
	sources := []string{"stream", "log"}
	changes := 4 + testscale.N(8)
	inside := 0
	for i := range changes {
		end := func(p *os.Process) error { return p.Signal(os.Interrupt) }
		if i%4 > 1 {
			end = func(p *os.Process) error { return p.Kill() }
		}
		struck, r := s.strike(t, pool, 1+i*total/changes, time.Duration(i)*5*time.Millisecond, end, "import", "--source", sources[i%2], path)
		if struck {
			inside++
		} else if r.code != 0 {
			t.Fatalf("the import ended with %d:\n%s", r.code, r.notes)
		}
	}
	if inside < changes/2 {
		t.Errorf("only %d of %d changes came in the middle of the import", inside, changes)
	}
	s.must(t, "import", path)
	sameReadModels(t, readModels(t, pool), want)
	audit(t, s, pool, path)
}
