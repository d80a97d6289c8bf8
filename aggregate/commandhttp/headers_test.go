package commandhttp

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

func header(name string, values ...string) http.Header {
	h := http.Header{}
	for _, v := range values {
		h.Add(name, v)
	}
	return h
}

func TestEntityTags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []string
		any    bool
		tags   []entityTag
		bad    bool
	}{
		{values: nil},
		{values: []string{"*"}, any: true},
		{values: []string{" * "}, any: true},
		{values: []string{`"v7"`}, tags: []entityTag{{false, `"v7"`}}},
		{values: []string{`W/"v7"`}, tags: []entityTag{{true, `"v7"`}}},
		{values: []string{`"v7" , W/"a,b",`, ` ,""`}, tags: []entityTag{{false, `"v7"`}, {true, `"a,b"`}, {false, `""`}}},
		{values: []string{"\"caf\xe9\""}, tags: []entityTag{{false, "\"caf\xe9\""}}},
		{values: []string{""}, bad: true},
		{values: []string{","}, bad: true},
		{values: []string{"v7"}, bad: true},
		{values: []string{`"v7`}, bad: true},
		{values: []string{`"v7" "v8"`}, bad: true},
		{values: []string{`w/"v7"`}, bad: true},
		{values: []string{`W/v7`}, bad: true},
		{values: []string{`"a b"`}, bad: true},
		{values: []string{`*, "v7"`}, bad: true},
		{values: []string{`"v7"`, `*`}, bad: true},
		{values: []string{"*", "*"}, bad: true},
		{values: []string{strings.Repeat(`"a",`, maxTags+1)}, bad: true},
	} {
		got, err := tagsOf(header("If-Match", c.values...), "If-Match")
		var p *Problem
		if c.bad != errors.As(err, &p) || got.any != c.any || !slices.Equal(got.tags, c.tags) || got.present != (c.values != nil && !c.bad) {
			t.Errorf("%q is %+v, %v", c.values, got, err)
		}
	}
}

// The table of RFC 9110, section 8.8.3.2, and what nothing matches.
func TestComparison(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value, current string
		strong, weak   bool
	}{
		{`W/"1"`, `"1"`, false, true},
		{`W/"2"`, `"1"`, false, false},
		{`"1"`, `"1"`, true, true},
		{`"2", "1"`, `"1"`, true, true},
		{`*`, `"1"`, true, true},
		{`*`, ``, false, false},
		{`"1"`, ``, false, false},
	} {
		l, err := tagsOf(header("If-Match", c.value), "If-Match")
		if err != nil || l.matches(c.current, false) != c.strong || l.matches(c.current, true) != c.weak {
			t.Errorf("%s and %s: strongly %t, weakly %t, %v", c.value, c.current, !c.strong, !c.weak, err)
		}
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	never := eventstore.Exactly(noVersion)
	for _, c := range []struct {
		match, none string
		rule        Precondition
		want        claims
		status      string // the kind of the problem
	}{
		{rule: Optional},
		{rule: Unversioned},
		{rule: Required, status: kindNeedsMatch},
		{match: `"v7"`, rule: Required, want: claims{eventstore.Exactly(7)}},
		{match: `"v7"`, rule: Unversioned, status: kindPrecondition},
		{none: `*`, rule: Unversioned, status: kindPrecondition},
		{match: `*`, rule: Optional, want: claims{eventstore.StreamExists}},
		{none: `*`, rule: Required, want: claims{eventstore.NoStream}},
		{none: `"v7"`, rule: Optional, status: kindSyntax},
		{match: `"v7"`, none: `*`, rule: Optional, want: claims{never}},
		{match: `W/"v7"`, rule: Optional, want: claims{never}},
		{match: `"v07", "x", "v0", "v-1", "v+1", "v99999999999999999999", "b7"`, rule: Optional, want: claims{never}},
		{match: `"v3", W/"v4", "v5"`, rule: Optional, want: claims{eventstore.Exactly(3), eventstore.Exactly(5)}},
		{match: `"`, rule: Optional, status: kindSyntax},
		{none: `"`, rule: Optional, status: kindSyntax},
	} {
		h := http.Header{}
		if c.match != "" {
			h.Set("If-Match", c.match)
		}
		if c.none != "" {
			h.Set("If-None-Match", c.none)
		}
		got, err := claimsOf(h, c.rule)
		var p *Problem
		if errors.As(err, &p); !slices.Equal(got, c.want) || (p != nil) != (c.status != "") || p != nil && p.Kind != c.status {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}

func TestPreferences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []string
		want   preferences
	}{
		{nil, preferences{}},
		{[]string{"respond-async"}, preferences{respondAsync: true}},
		{[]string{"Respond-Async, Wait=10"}, preferences{respondAsync: true, wait: 10 * time.Second, waits: true}},
		{[]string{`respond-async; a="x,y;\"z" ;; b , wait = "3"`}, preferences{respondAsync: true, wait: 3 * time.Second, waits: true}},
		{[]string{"wait=1", "wait=2, handling=LENIENT; x=1"}, preferences{wait: time.Second, waits: true, lenient: true}},
		{[]string{`respond-async=""`}, preferences{respondAsync: true}},
		{[]string{"respond-async=no, handling=strict"}, preferences{}},
		{[]string{"wait=-1, wait=5"}, preferences{}}, // the first of a name counts
		{[]string{"wait=1s"}, preferences{}},
		{[]string{"wait=99999999999"}, preferences{}},
		{[]string{`foo="a, wait=7`}, preferences{}},
		{[]string{`@ "x,y", wait=7`}, preferences{wait: 7 * time.Second, waits: true}},
		{[]string{",,, ;;, =3, respond-async"}, preferences{respondAsync: true}},
	} {
		if got := preferencesOf(header("Prefer", c.values...)); got != c.want {
			t.Errorf("%q: %+v, want %+v", c.values, got, c.want)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", maxKey)
	for _, c := range []struct {
		values []string
		want   string
		bad    bool
	}{
		{nil, "", false},
		{[]string{`"8e03978e-40d5-43dd-bc93-6894a57f9324"`}, "8e03978e-40d5-43dd-bc93-6894a57f9324", false},
		{[]string{`8e03978e-40d5-43dd-bc93-6894a57f9324`}, "8e03978e-40d5-43dd-bc93-6894a57f9324", false},
		{[]string{`  "a b" `}, "a b", false},
		{[]string{`"a\"b\\c"`}, `a"b\c`, false},
		{[]string{`"a";p=1`}, "a", false},
		{[]string{`"` + long + `"`}, long, false},
		{[]string{`a:b/c=d@e`}, "a:b/c=d@e", false},
		{[]string{`"` + long + `k"`}, "", true},
		{[]string{``}, "", true},
		{[]string{`""`}, "", true},
		{[]string{`"a`}, "", true},
		{[]string{`"a\b"`}, "", true},
		{[]string{`"a\`}, "", true},
		{[]string{"\"caf\xc3\xa9\""}, "", true},
		{[]string{"\"a\tb\""}, "", true},
		{[]string{`"a" "b"`}, "", true},
		{[]string{`a b`}, "", true},
		{[]string{`a,b`}, "", true},
		{[]string{`a`, `b`}, "", true},
		{[]string{`a`, `a`}, "", true},
	} {
		got, err := keyOf(header(KeyHeader, c.values...))
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%q: %q, %v", c.values, got, err)
		}
	}
}

func TestAccept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value, want string
		ok          bool
	}{
		{"", "", true},
		{"*/*", "", true},
		{"application/json", "", true},
		{"text/event-stream", streamType, true},
		{"text/event-stream, application/json;q=0.9", streamType, true},
		{"application/json, text/event-stream;q=0.5", "", true},
		{"text/event-stream;q=0, */*", "", true},
		{"text/*, application/json;q=0.1", streamType, true},
		{"text/html", "", false},
		{"application/json;q=0", "", false},
	} {
		h := http.Header{}
		if c.value != "" {
			h.Set("Accept", c.value)
		}
		if got, ok := accepts(h); got != c.want || ok != c.ok {
			t.Errorf("%q: %q, %t", c.value, got, ok)
		}
	}
}

// Whoever sends a key that cannot be read is told what is wrong with it.
func TestKeyProblems(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"lunch 31":               "it needs quotes, as it has spaces or signs that stand in quotes only",
		"(lunch)":                "it needs quotes, as it has spaces or signs that stand in quotes only",
		`"lunch`:                 "it is not a text of visible characters in quotes",
		"é":                      "it is not a text of visible characters in quotes",
		"a\tb":                   "it is not a text of visible characters in quotes",
		strings.Repeat("k", 256): "it has more than 255 characters; shorten it, for example to a UUID",
	} {
		_, err := keyOf(header(KeyHeader, value))
		var p *Problem
		if !errors.As(err, &p) || p.Field != KeyHeader || !strings.HasPrefix(p.Detail+"; "+p.Remedy, want) {
			t.Errorf("%q: %+v", value, err)
		}
	}
}

// What is shown in a problem is escaped once, by its JSON.
func TestShorten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`W/"v1"`: `W/"v1"`, "a\tb\nc\x00d\x7fe": `a\tb\nc\x00d\x7fe`, "\xff\u2028é": `\xff\u2028é`, `a\b`: `a\b`, "": "",
		strings.Repeat("é", 40): strings.Repeat("é", 30) + "…", "a" + strings.Repeat("é", 30): "a" + strings.Repeat("é", 29) + "…",
	} {
		if got := Shorten(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// FuzzHeaders looks for headers that end the program, or are read in two ways.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{`"v7", W/"v8"`, "*", `respond-async; a="b", wait=3`, `"a\"b";x=1`, "text/event-stream;q=0.3", `"`, "\\", ",;="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if l, err := tagsOf(header("If-Match", text), "If-Match"); err == nil && !l.any {
			again := make([]string, len(l.tags))
			for i, tag := range l.tags {
				again[i] = tag.text
				if tag.weak {
					again[i] = "W/" + tag.text
				}
				if v, ok := tag.version(); ok && ETag(v) != tag.text {
					t.Errorf("%q is version %d", tag.text, v)
				}
			}
			if second, err := tagsOf(header("If-Match", again...), "If-Match"); err != nil || !slices.Equal(second.tags, l.tags) {
				t.Errorf("%q: %v, then %v, %v", text, l.tags, second.tags, err)
			}
		}
		key, err := keyOf(header(KeyHeader, text))
		if err == nil {
			quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
			if again, err := keyOf(header(KeyHeader, quoted)); err != nil || again != key {
				t.Errorf("%q: key %q, then %q, %v", text, key, again, err)
			}
			claim := eventstore.Claim{Key: key}
			if err := claim.Validate(); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
		p := preferencesOf(header("Prefer", text))
		if p.wait < 0 || p.waits && p.wait > 1<<31*time.Second {
			t.Errorf("%q: %v", text, p.wait)
		}
		accepts(header("Accept", text))
		if shown := Shorten(text); len(shown) > 4*60+len("…") || strings.ContainsAny(shown, "\n\r\x00") {
			t.Errorf("%q is shown as %q", text, shown)
		}
		_, _ = claimsOf(header("If-None-Match", text), Optional)
		_, _ = Tokens{}.tokenOf(header(TokenHeader, text))
	})
}
