package projection

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/govalues/decimal"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

type (
	line struct {
		Text   string
		Amount decimal.Decimal
		At     time.Time
	}
	inner struct {
		Depth int8
	}
	everything struct {
		inner
		AccountID string
		Flag      bool
		Small     int16
		Big       int64
		Unsigned  uint32
		Ratio     float64
		At        time.Time
		Bytes     []byte
		ID        uuid.UUID
		Balance   decimal.Decimal
		Address   netip.Addr
		Plain     decimal.Decimal `db:"as_json,jsonb"`
		Lines     []line
		ByName    map[string]int64
		Maybe     *string
		MaybeAt   *time.Time
		MaybeSum  *decimal.Decimal
		MaybeLine *line
	}
)

func mustDecimal(s string) decimal.Decimal { return decimal.MustParse(s) }

// Every type of column gives back what was stored, also its extremes, however the pool sends its statements: behind a
// transaction pooler it may not cache them.
func TestColumnsRoundTrip(t *testing.T) {
	t.Parallel()
	at := time.Date(1999, 12, 31, 23, 59, 59, 987_654_321, time.FixedZone("x", 3600))
	settled := time.Date(1999, 12, 31, 22, 59, 59, 987_654_000, time.UTC)
	text, sum := "", mustDecimal("-0.010")
	states := map[string]struct{ in, out everything }{
		"zero": {
			everything{Address: netip.IPv4Unspecified()},
			everything{Address: netip.IPv4Unspecified(), Bytes: []byte{}, At: time.Time{}},
		},
		"full": {
			everything{
				inner{-128}, "ü\u2028'\"\\", true, -32768, math.MaxInt64, math.MaxUint32, math.Nextafter(0.1, 1), at, []byte{0, 255}, uuid.UUID{1, 2},
				mustDecimal("1234567890123456.780"), netip.MustParseAddr("2001:db8::1"), mustDecimal("7.50"),
				[]line{{"a", mustDecimal("1.10"), settled}}, map[string]int64{"n": math.MinInt64}, &text, &at, &sum, &line{Amount: sum},
			},
			everything{
				inner{-128}, "ü\u2028'\"\\", true, -32768, math.MaxInt64, math.MaxUint32, math.Nextafter(0.1, 1), settled, []byte{0, 255}, uuid.UUID{1, 2},
				mustDecimal("1234567890123456.780"), netip.MustParseAddr("2001:db8::1"), mustDecimal("7.50"),
				[]line{{"a", mustDecimal("1.10"), settled}}, map[string]int64{"n": math.MinInt64}, &text, &settled, &sum, &line{Amount: sum},
			},
		},
		"empty": {
			everything{Address: netip.IPv6Loopback(), Lines: []line{}, ByName: map[string]int64{}, Big: math.MinInt64, Ratio: math.Inf(-1)},
			everything{Address: netip.IPv6Loopback(), Lines: []line{}, ByName: map[string]int64{}, Big: math.MinInt64, Ratio: math.Inf(-1), Bytes: []byte{}},
		},
	}
	modes := []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}
	viewFor := func(mode pgx.QueryExecMode) View[string, everything] {
		return View[string, everything]{
			Name: fmt.Sprint("everything_", int(mode)), Version: 1, Events: testEvents,
			Folds: []Fold[string, everything]{
				On(ByStream, func(_ everything, e Event[other]) everything { return states[e.Payload.Text].in }),
				// What is loaded must be storable again, and equal.
				On(ByStream, func(s everything, e Event[removed]) everything { return s }),
			},
		}
	}
	w := newWorld(t)
	var token eventstore.Token
	for name := range states {
		token = w.append(name, other{name}, removed{1})
	}
	for _, mode := range modes {
		v := viewFor(mode)
		w.install(v)
		cfg := w.pool.Config()
		cfg.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		sends := &world{t, pool, w.store} // for the runner, the waiter and the reads
		stop := sends.start(sends.runner(Config{BatchSize: 1}, v))
		sends.wait(token, v)
		rows := rowsOf(sends, v)
		for name, c := range states {
			// Decimals compare with their scale, addresses by value.
			if diff := cmp.Diff(c.out, rows[name], cmp.AllowUnexported(everything{}, netip.Addr{}), cmp.Comparer(func(a, b decimal.Decimal) bool { return a == b }),
				cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("%s, %s: %s", mode, name, diff)
			}
		}
		if got := ask[string](sends, "SELECT balance::text FROM readmodels."+v.Name+" WHERE key = 'full'"); got != "1234567890123456.780" {
			t.Errorf("%s: the balance is stored as %s", mode, got)
		}
		stop()
	}
}

func TestScalarKeysAndStates(t *testing.T) {
	t.Parallel()
	day := func(e Event[added]) time.Time {
		return e.RecordedAt.Truncate(24 * time.Hour).In(time.FixedZone("x", 7200))
	}
	perDay := View[time.Time, decimal.Decimal]{
		Name: "per_day", Version: 1, Events: testEvents,
		Folds: []Fold[time.Time, decimal.Decimal]{On(day, func(s decimal.Decimal, e Event[added]) decimal.Decimal {
			d, err := s.Add(decimal.MustNew(e.Payload.N, 2))
			if err != nil {
				panic(err)
			}
			return d
		})},
	}
	seen := View[int64, struct{}]{
		Name: "seen", Version: 1, Events: testEvents,
		Folds: []Fold[int64, struct{}]{On(func(e Event[added]) int64 { return -e.Payload.N }, func(struct{}, Event[added]) struct{} { return struct{}{} })},
	}
	w := newWorld(t, perDay, seen)
	w.start(w.runner(Config{BatchSize: 2}, perDay, seen))
	w.append("a", added{10}, added{15}, added{10})
	w.wait(w.append("b", added{9}), perDay, seen)
	rows := rowsOf(w, perDay)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	if got := rows[today]; got.String() != "0.44" && len(rows) == 1 { // two days at midnight
		t.Errorf("%s is %s, rows are %v", today, got, rows)
	}
	if s, err := perDay.Get(t.Context(), w.pool, today.In(time.Local)); err == nil && s.String() != rows[today].String() {
		t.Errorf("Get says %s", s)
	}
	if diff := cmp.Diff(map[int64]struct{}{-10: {}, -15: {}, -9: {}}, rowsOf(w, seen)); diff != "" {
		t.Error(diff)
	}
}

func TestTypesThatAreRefused(t *testing.T) {
	t.Parallel()
	type hidden struct{ secret int }
	_ = hidden{}.secret // it is there to be refused
	type deep struct{ Inner []hidden }
	for want, types := range map[string][2]reflect.Type{
		"secret: the field is unexported and would be lost: export it": {reflect.TypeFor[string](), reflect.TypeFor[hidden]()},
		"Inner.secret: the field is unexported and would be lost":      {reflect.TypeFor[string](), reflect.TypeFor[deep]()},
		"Any: interface {} cannot be stored":                           {reflect.TypeFor[string](), reflect.TypeFor[struct{ Any any }]()},
		"Any: interface {} cannot be read back":                        {reflect.TypeFor[string](), reflect.TypeFor[struct{ Any []any }]()},
		"F: func() cannot be stored":                                   {reflect.TypeFor[string](), reflect.TypeFor[struct{ F func() }]()},
		"double precision cannot be part of a key":                     {reflect.TypeFor[float64](), reflect.TypeFor[int]()},
		"numeric cannot be part of a key":                              {reflect.TypeFor[decimal.Decimal](), reflect.TypeFor[int]()},
		"text cannot be part of a key":                                 {reflect.TypeFor[struct{ P *string }](), reflect.TypeFor[int]()},
		"a key needs at least one field":                               {reflect.TypeFor[struct{}](), reflect.TypeFor[int]()},
		`are both column "value"`:                                      {reflect.TypeFor[struct{ Value string }](), reflect.TypeFor[int]()},
		`are both column "a"`: {reflect.TypeFor[string](), reflect.TypeFor[struct {
			A int
			B int `db:"a"`
		}]()},
		`would lose the field`: {reflect.TypeFor[string](), reflect.TypeFor[struct {
			A int `db:"-"`
		}]()},
		`option "json" is unknown`: {reflect.TypeFor[string](), reflect.TypeFor[struct {
			A []int `db:"a,json"`
		}]()},
		`numeric needs a type with MarshalText`: {reflect.TypeFor[string](), reflect.TypeFor[struct {
			A int `db:"a,numeric"`
		}]()},
	} {
		if _, err := newTable("s", "n", 1, types[0], types[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

func TestSnake(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"A": "a", "AccountID": "account_id", "HTTPStatus": "http_status", "ID": "id", "Some_Thing": "some_thing", "V2Count": "v2_count", "Äpfel": "äpfel",
	} {
		if got := snake(in); got != want {
			t.Errorf("snake(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestZeroEscape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{`"\u0000"`: true, `"\\u0000"`: false, `"\\\u0000"`: true, `"\u0001"`: false, `"\\`: false, `\u000`: false} {
		if got := hasZeroEscape([]byte(in)); got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
}

func TestTooManyKeys(t *testing.T) {
	t.Parallel()
	v := View[string, int]{
		Name: "wide", Version: 1, Events: testEvents,
		Folds: []Fold[string, int]{OnEach(func(e Event[listed]) []string { return e.Payload.Keys }, func(_ string, n int, _ Event[listed]) int { return n + 1 })},
	}
	w := newWorld(t, v)
	keys := make([]string, maxKeys+1)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	token := w.append("s", listed{keys[:maxKeys]})
	w.append("s", listed{keys})
	r := w.runner(Config{OnFailure: Stop, Attempts: 1}, v)
	w.start(r)
	if reason := stopped(t, r, 0); !strings.Contains(reason, "names 1001 keys, more than 1000") || !strings.Contains(reason, `"test-s" version 2`) {
		t.Errorf("reason is %q", reason)
	}
	w.wait(token, v)
	if n := len(rowsOf(w, v)); n != maxKeys {
		t.Errorf("%d rows", n)
	}
}
