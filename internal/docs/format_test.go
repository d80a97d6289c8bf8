package docs

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// rows returns the cells of the table in a page whose header begins with first.
func rows(t *testing.T, name, first string) [][]string {
	t.Helper()
	var all [][]string
	inside := false
	for _, l := range parse(name, read(t, name)).prose {
		text := strings.TrimSpace(l.text)
		if !strings.HasPrefix(text, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(text, "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		switch {
		case cells[0] == first:
			inside = true
		case inside && !strings.HasPrefix(cells[0], "--"):
			all = append(all, cells)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no table %q", name, first)
	}
	return all
}

// The vectors of the page hold for the function in Go and for the one in the database.
func TestFormatPartitions(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	for _, row := range rows(t, "docs/format.md", "partition key") {
		key := row[0]
		if key == "(empty)" {
			key = ""
		}
		h := fnv.New64a()
		h.Write([]byte(key))
		if got := fmt.Sprintf("%016x", h.Sum64()); got != row[1] {
			t.Errorf("key %q: hash %s, the page says %s", key, got, row[1])
		}
		for i, n := range []int{64, 1000} {
			if got := fmt.Sprint(eventstore.PartitionOf(key, n)); got != row[2+i] {
				t.Errorf("key %q of %d: partition %s, the page says %s", key, n, got, row[2+i])
			}
			var got string
			if err := pool.QueryRow(t.Context(), `SELECT daybook.partition_of($1, $2::int)::text`, key, n).Scan(&got); err != nil || got != row[2+i] {
				t.Errorf("key %q of %d in SQL: partition %s, %v, the page says %s", key, n, got, err, row[2+i])
			}
		}
	}
}

// The token of the page is the one that the code writes, in both forms.
func TestFormatToken(t *testing.T) {
	t.Parallel()
	token := eventstore.MakeToken(uuid.MustParse("01234567-89ab-cdef-0123-456789abcdef"), eventstore.Mark{
		Partition: 7, Position: eventstore.PositionAt(300), Streams: []uint32{eventstore.StreamHash(eventstore.NewStreamID("account", "42"))},
	})
	binary, err := base64.RawURLEncoding.DecodeString(token.String())
	if err != nil {
		t.Fatal(err)
	}
	text := read(t, "docs/format.md")
	var want string
	for _, row := range rows(t, "docs/format.md", "bytes") {
		want += row[0]
	}
	if got := hex.EncodeToString(binary); got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("the token is %s, the page says %s", got, want)
	}
	if !strings.Contains(text, "`"+token.String()+"`") {
		t.Errorf("the page lacks the text form %s", token)
	}
}

// The rules of the codecs stand in the page as they stand in the code.
func TestFormatCodecRules(t *testing.T) {
	t.Parallel()
	var want strings.Builder
	for l := range strings.Lines(read(t, "eventstore/codec.go")) {
		if rule, ok := strings.CutPrefix(l, "//\t"); ok {
			want.WriteString(rule)
		}
	}
	for _, b := range parse("", read(t, "docs/format.md")).blocks {
		if b.lang == "text" && strings.HasPrefix(b.text, "what ") {
			if b.text != want.String() {
				t.Errorf("docs/format.md:%d differs from the comment in eventstore/codec.go, which is:\n%s", b.line, want.String())
			}
			return
		}
	}
	t.Error("docs/format.md has no table of the codecs' rules")
}
