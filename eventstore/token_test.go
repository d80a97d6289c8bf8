package eventstore_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/eventstore"
)

var epoch = uuid.MustParse("0f8b2f66-6c1e-4d1b-9f0b-3f3b6f9d2a11")

func mark(partition int, position int64, streams ...uint32) eventstore.Mark {
	return eventstore.Mark{Partition: partition, Position: eventstore.PositionAt(position), Streams: streams}
}

func sameMarks(a, b []eventstore.Mark) bool {
	return slices.EqualFunc(a, b, func(a, b eventstore.Mark) bool {
		return a.Partition == b.Partition && a.Position == b.Position &&
			(a.Streams == nil) == (b.Streams == nil) && slices.Equal(a.Streams, b.Streams)
	})
}

func TestMakeToken(t *testing.T) {
	t.Parallel()
	var seventeen []uint32
	for i := range uint32(17) {
		seventeen = append(seventeen, i)
	}
	tests := []struct {
		name  string
		marks []eventstore.Mark
		want  []eventstore.Mark
	}{
		{"none", nil, nil},
		{"sorted by partition", []eventstore.Mark{mark(9, 1, 4), mark(2, 3, 5)}, []eventstore.Mark{mark(2, 3, 5), mark(9, 1, 4)}},
		{"one partition", []eventstore.Mark{mark(2, 3, 5), mark(2, 9, 4), mark(2, 7, 5)}, []eventstore.Mark{mark(2, 9, 4, 5)}},
		{"any stream absorbs", []eventstore.Mark{mark(2, 3, 5), mark(2, 9)}, []eventstore.Mark{mark(2, 9)}},
		{"an empty list is any stream", []eventstore.Mark{{Partition: 1, Streams: []uint32{}}}, []eventstore.Mark{mark(1, 0)}},
		{"sixteen streams are kept", []eventstore.Mark{mark(1, 1, seventeen[:16]...)}, []eventstore.Mark{mark(1, 1, seventeen[:16]...)}},
		{"more are any", []eventstore.Mark{mark(1, 1, seventeen...)}, []eventstore.Mark{mark(1, 1)}},
		{"more after joining", []eventstore.Mark{mark(1, 1, seventeen[:9]...), mark(1, 1, seventeen[9:]...)}, []eventstore.Mark{mark(1, 1)}},
		{"repeated streams count once", []eventstore.Mark{mark(1, 1, append(seventeen[:16:16], 3)...)}, []eventstore.Mark{mark(1, 1, seventeen[:16]...)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := eventstore.MakeToken(epoch, tt.marks...)
			if !sameMarks(got.Marks(), tt.want) {
				t.Fatalf("Marks() = %v, want %v", got.Marks(), tt.want)
			}
			if got.Epoch() != epoch || got.IsZero() != (len(tt.want) == 0) {
				t.Errorf("epoch %s, IsZero %v", got.Epoch(), got.IsZero())
			}
			back, err := eventstore.ParseToken(got.String())
			if err != nil || !sameMarks(back.Marks(), tt.want) || back.String() != got.String() {
				t.Errorf("through its text: %v, %v", back.Marks(), err)
			}
		})
	}
}

func TestTokenKeepsItsMarks(t *testing.T) {
	t.Parallel()
	streams := []uint32{3, 1}
	token := eventstore.MakeToken(epoch, mark(1, 1, streams...))
	before := token.String()
	streams[0] = 99
	if _, err := token.Merge(eventstore.MakeToken(epoch, mark(1, 5, 7), mark(0, 1, 1))); err != nil {
		t.Fatal(err)
	}
	if token.String() != before {
		t.Error("a token changed after it was made")
	}
}

func TestTokenMergeEpochs(t *testing.T) {
	t.Parallel()
	a := eventstore.MakeToken(epoch, mark(1, 1, 1))
	b := eventstore.MakeToken(uuid.Max, mark(1, 1, 1))
	var history *eventstore.HistoryError
	if _, err := a.Merge(b); !errors.As(err, &history) || !errors.Is(err, eventstore.ErrHistory) || history.Remedy == "" {
		t.Errorf("merging two epochs: %v, want a HistoryError", err)
	}
	for _, pair := range [][2]eventstore.Token{{a, {}}, {{}, a}, {a, eventstore.MakeToken(uuid.Max)}} {
		if got, err := pair[0].Merge(pair[1]); err != nil || got.String() != a.String() {
			t.Errorf("merge with a token that asks for nothing: %v, %v", got, err)
		}
	}
}

func drawToken(t *rapid.T, label string) eventstore.Token {
	// Few partitions and hashes, so that they meet; lists long enough to go over the limit.
	n := rapid.IntRange(0, 4).Draw(t, label+" marks")
	var marks []eventstore.Mark
	for range n {
		marks = append(marks, mark(
			rapid.IntRange(0, 3).Draw(t, "partition"),
			rapid.Int64Range(0, 1<<40).Draw(t, "position"),
			rapid.SliceOfN(rapid.Uint32Range(0, 30), 0, 18).Draw(t, "streams")...))
	}
	return eventstore.MakeToken(epoch, marks...)
}

func TestTokenMergeLaws(t *testing.T) {
	t.Parallel()
	merge := func(t *rapid.T, a, b eventstore.Token) eventstore.Token {
		merged, err := a.Merge(b)
		if err != nil {
			t.Fatalf("merge: %v", err)
		}
		return merged
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawToken(t, "a"), drawToken(t, "b"), drawToken(t, "c")
		ab := merge(t, a, b)
		if ab.String() != merge(t, b, a).String() {
			t.Fatalf("not commutative: %v and %v", a.Marks(), b.Marks())
		}
		if merge(t, ab, c).String() != merge(t, a, merge(t, b, c)).String() {
			t.Fatalf("not associative: %v, %v and %v", a.Marks(), b.Marks(), c.Marks())
		}
		if merge(t, a, a).String() != a.String() || merge(t, ab, a).String() != ab.String() {
			t.Fatalf("not idempotent: %v", a.Marks())
		}
		// The merged token asks for at least as much as each part.
		for _, m := range a.Marks() {
			at := slices.IndexFunc(ab.Marks(), func(x eventstore.Mark) bool { return x.Partition == m.Partition })
			if at < 0 || ab.Marks()[at].Position.Before(m.Position) {
				t.Fatalf("merge lost %v: %v", m, ab.Marks())
			}
			for _, s := range m.Streams {
				if streams := ab.Marks()[at].Streams; streams != nil && !slices.Contains(streams, s) {
					t.Fatalf("merge lost stream %d of %v: %v", s, m, ab.Marks())
				}
			}
		}
		back, err := eventstore.ParseToken(ab.String())
		if err != nil || !sameMarks(back.Marks(), ab.Marks()) {
			t.Fatalf("through its text: %v, %v", back.Marks(), err)
		}
	})
}

func TestParseTokenRefuses(t *testing.T) {
	t.Parallel()
	good := eventstore.MakeToken(epoch, mark(1, 300, 1, 2), mark(2, 7, 3))
	raw, err := base64.RawURLEncoding.DecodeString(good.String())
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(change func([]byte) []byte) string {
		return base64.RawURLEncoding.EncodeToString(change(slices.Clone(raw)))
	}
	tests := map[string]string{
		"not base64":              "!!!",
		"padding":                 good.String() + "=",
		"line break":              good.String()[:10] + "\n" + good.String()[10:],
		"too short":               "AQ",
		"no marks":                damaged(func(b []byte) []byte { return b[:17] }),
		"other format":            damaged(func(b []byte) []byte { b[0] = 2; return b }),
		"cut":                     damaged(func(b []byte) []byte { return b[:len(b)-1] }),
		"one byte more":           damaged(func(b []byte) []byte { return append(b, 5) }),
		"partitions out of order": damaged(func(b []byte) []byte { b[17] = 3; return b }),
		"long varint":             damaged(func(b []byte) []byte { return slices.Insert(b, 17, 0x80) }),
		"many hashes":             damaged(func(b []byte) []byte { return append(b[:17], 1, 1, 0xff, 0xff, 0x03) }),
		"hashes out of order":     damaged(func(b []byte) []byte { b[21], b[25] = b[25], b[21]; return b }),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := eventstore.ParseToken(text)
			wantInvalid(t, err, "token")
			if !got.IsZero() {
				t.Errorf("a refused token asks for %v", got.Marks())
			}
		})
	}
	if empty, err := eventstore.ParseToken(""); err != nil || !empty.IsZero() || empty.String() != "" {
		t.Errorf(`ParseToken("") = %v, %v`, empty, err)
	}
}

func TestTokenInJSON(t *testing.T) {
	t.Parallel()
	type response struct{ Token eventstore.Token }
	for _, token := range []eventstore.Token{{}, eventstore.MakeToken(epoch, mark(63, 1<<62-1, 1))} {
		text, err := json.Marshal(response{token})
		var back response
		if err != nil || json.Unmarshal(text, &back) != nil || back.Token.String() != token.String() {
			t.Errorf("%s, %v, back %v", text, err, back.Token.Marks())
		}
	}
	kept := response{eventstore.MakeToken(epoch, mark(1, 1))}
	if err := json.Unmarshal([]byte(`{"Token":"nonsense"}`), &kept); !errors.Is(err, eventstore.ErrInvalid) || kept.Token.IsZero() {
		t.Errorf("a bad token must be refused and change nothing: %v", err)
	}
	if text := eventstore.MakeToken(epoch, mark(1, 1)).String(); strings.ContainsAny(text, "+/=%& ") {
		t.Errorf("%q is not safe in a URL", text)
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("")
	f.Add("AQ")
	f.Add(eventstore.MakeToken(epoch, mark(1, 300, 1, 2), mark(2, 7)).String())
	f.Fuzz(func(t *testing.T, text string) {
		token, err := eventstore.ParseToken(text)
		if err != nil {
			if !errors.Is(err, eventstore.ErrInvalid) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if token.String() != text {
			t.Fatalf("%q became %q", text, token.String())
		}
		if merged, err := token.Merge(token); err != nil || merged.String() != text {
			t.Fatalf("merge with itself: %v, %v", merged.Marks(), err)
		}
	})
}
