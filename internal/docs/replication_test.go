package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Who moves to another server by logical replication follows a list of tables. One that is missing there stays behind.
func TestEveryTableMovesToAnotherServer(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, moving, found := strings.Cut(string(text), "**PostgreSQL, by logical replication**")
	moving, _, ended := strings.Cut(moving, "\n## ")
	if !found || !ended {
		t.Fatal("docs/operations.md has no part on logical replication")
	}
	files, err := filepath.Glob("../../eventstore/postgres/migrations/*.sql")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d migrations: %v", len(files), err)
	}
	table := regexp.MustCompile(`CREATE TABLE \{schema\}\.([a-z_]*[a-z])\b`)
	numbered := regexp.MustCompile(`(?m)^\s+([a-z_]+) +bigint GENERATED ALWAYS AS IDENTITY`)
	missing := func(name string) {
		if !strings.Contains(moving, "`"+name+"`") && !strings.Contains(moving, "'"+name+"'") {
			t.Errorf("docs/operations.md does not say what becomes of %s", name)
		}
	}
	tables := 0
	for _, file := range files {
		sql, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range table.FindAllStringSubmatch(string(sql), -1) {
			tables++
			missing(m[1])
		}
		for _, m := range numbered.FindAllStringSubmatch(string(sql), -1) {
			missing(m[1])
		}
	}
	if tables < 30 {
		t.Errorf("%d tables are found", tables)
	}
}
