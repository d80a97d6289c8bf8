package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/retry"
)

type pgError struct{ code, text string }

func (e *pgError) Error() string    { return e.text }
func (e *pgError) SQLState() string { return e.code }

type refused struct{ reason string }

func (r refused) Error() string { return r.reason }

func of(err error) string { return retry.Fingerprint("balances", eventstore.Transient, err) }

func TestFingerprintIgnoresWhatDiffersFromMessageToMessage(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{"account 17 is closed", "account 4711 is closed", "account 0 is closed", "account -3 is closed", "account 1,234.50 is closed", "account 1e-9 is closed"},
		{"order 5f0c6a1e-2b3c-4d5e-8f90-abcdefabcdef unknown", "order ABCDEFAB-CDEF-ABCD-EFAB-CDEFABCDEFAB unknown", "order 42 unknown"},
		{`unknown currency "EUR"`, `unknown currency "US \"dollar\""`, `unknown currency ""`, `unknown currency 'CHF'`, "unknown currency `JPY`"},
		{"no such user 'O\\'Neill'", "no such user 'O'Neill'", "no such user 'x'"},
		{"hash 0xdeadbeef differs", "hash 0x1 differs", "hash deadbeefcafe differs", "hash c0ffee differs", "hash DEADBEEFDEADBEEF differs"},
		{"key 01ARZ3NDEKTSV4RRFFQ69G5FAV is taken", "key 01BX5ZZKBKACTAV9WEVGEMMVRZ is taken"},
		{"at 2030-01-02T03:04:05.678Z: too late", "at 1999-12-31 23:59:59: too late"},
		{"waited 1m30s", "waited 2.5ms", "waited 300µs"},
		{"dial tcp 10.0.0.1:5432: refused", "dial tcp 192.168.17.255:6432: refused"},
		{"rows [1 2 3] are locked", "rows [7] are locked", `rows ["a", "b"] are locked`},
		{"balance -5 is negative", "balance 12 is negative"},
		{"user_17 is away", "user_4 is away"},
		{`bad body {"id":17,"name":"a b"}`, `bad body {"id":4,"name":"c"}`},
		{`bad value "` + strings.Repeat("x", 10_000) + `"`, `bad value "` + strings.Repeat("y", 20_000) + `"`},
	} {
		for _, text := range same[1:] {
			if of(errors.New(same[0])) != of(errors.New(text)) {
				t.Errorf("%.60q and %.60q differ", same[0], text)
			}
		}
	}
	// What wraps the cause may name the message too.
	for i := range 100 {
		err := fmt.Errorf("event %d of stream account-%x: %w", i, i*7919, &pgError{"23505", fmt.Sprintf("duplicate key (id)=(%d)", i)})
		if got, want := of(err), of(fmt.Errorf("event: %w", &pgError{"23505", "duplicate key (id)=(0)"})); got != want {
			t.Fatalf("%v: %s, want %s", err, got, want)
		}
	}
	one := errors.Join(refused{"row 1"}, refused{"row 2"})
	if of(one) != of(errors.Join(refused{"row 3"}, refused{"row 4"}, refused{"row 5"})) {
		t.Error("it matters how many rows have the same fault")
	}
}

func TestFingerprintTellsCausesApart(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	add := func(name, fingerprint string) {
		if len(fingerprint) != 16 || strings.Trim(fingerprint, "0123456789abcdef") != "" {
			t.Errorf("%s: %q", name, fingerprint)
		}
		if other, ok := seen[fingerprint]; ok {
			t.Errorf("%s and %s share %s", name, other, fingerprint)
		}
		seen[fingerprint] = name
	}
	closed := errors.New("account 1 is closed")
	add("nothing", of(nil))
	add("text", of(closed))
	add("handler", retry.Fingerprint("balance", eventstore.Transient, closed))
	add("kind", retry.Fingerprint("balances", eventstore.Permanent, closed))
	add("handler and kind are apart", retry.Fingerprint("balancestransient", 99, closed))
	for _, text := range []string{
		"", "account 1 is open", "account is closed", "account 1 is 2 closed", "account can't be closed", "account don't be closed",
		"the users' account", "the clients' account", "facade", "accede", "a - b", "a b",
	} {
		add(text, of(errors.New(text)))
	}
	add("type", of(refused{"account 1 is closed"}))
	add("pointer", of(&refused{"account 1 is closed"}))
	add("wrapped", of(fmt.Errorf("x: %w", closed)))
	add("wrapped type", of(fmt.Errorf("x: %w", refused{"account 1 is closed"})))
	add("path", of(&fs.PathError{Op: "open", Path: "a", Err: closed}))
	add("23505", of(&pgError{"23505", "no"}))
	add("23503", of(&pgError{"23503", "no"}))
	add("no state", of(&pgError{"", "no"}))
	add("wrapped 23505", of(fmt.Errorf("x: %w", &pgError{"23505", "no"})))
	add("wrapped 23503", of(fmt.Errorf("x: %w", &pgError{"23503", "no"})))
	add("cause beside a sentinel", of(fmt.Errorf("%w: %w", io.EOF, closed)))
	add("other cause beside it", of(fmt.Errorf("%w: %w", io.EOF, context.Canceled)))
	add("quotes", of(errors.New(strings.Repeat(" 'x", 2000))))
	add("broken", of((*broken)(nil)))
	add("loop", of(loop{}))
}

// The fingerprint is stored: this one must stay.
func TestFingerprintStaysTheSame(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("event 7: %w", &pgError{"23505", `duplicate key value violates unique constraint "accounts_pkey"`})
	if got := retry.Fingerprint("balances", eventstore.Permanent, err); got != "ef0f0bdb6b209485" {
		t.Errorf("%s", got)
	}
}
