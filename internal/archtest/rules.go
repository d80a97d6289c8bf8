package archtest

import (
	"slices"
	"strings"
)

const module = "github.com/daybook-go/daybook/"

// Groups of other people's modules, by import path prefix.
var (
	ids       = []string{"github.com/google/uuid"}
	codecs    = []string{"github.com/vmihailenco/msgpack/v5"}
	pgx       = []string{"github.com/jackc/pgx/v5"}
	watermill = []string{"github.com/ThreeDotsLabs/watermill"}
	// concurrency: small, and without a world of its own.
	small = []string{"golang.org/x/sync"}
	// a cache of the process, and what finds the concurrency that a machine bears.
	caches   = []string{"github.com/hashicorp/golang-lru/v2"}
	limiters = []string{"github.com/failsafe-go/failsafe-go"}
	// for packages whose name ends in test.
	testTools = []string{"github.com/google/go-cmp", "pgregory.net/rapid", "go.uber.org/goleak"}
	// telemetry is the API only; exporters live in nested modules.
	telemetry = []string{"go.opentelemetry.io/otel"}
)

const (
	testcontainers = "github.com/testcontainers/testcontainers-go"
	anything       = "*"
)

// rule says what the packages of a folder may import besides the standard
// library. Paths of this module are written without it.
type rule struct {
	// pkg is a package; with "/..." at its end also the folders below.
	pkg string
	// may are exact packages of this module, or "x/..." for all below.
	may []string
	// foreign are prefixes of other modules; anything allows all but those that
	// belong to one package.
	foreign [][]string
}

// rules are tried in order, the first that fits counts.
var rules = []rule{
	// The core, which a user's domain compiles with.
	{pkg: "", may: nil},
	{pkg: "eventstore", foreign: [][]string{ids, codecs}},
	{pkg: "eventstore/memory", may: []string{"eventstore", "snapshot"}, foreign: [][]string{ids}},
	{pkg: "snapshot", may: []string{"eventstore"}},
	{pkg: "aggregate", may: []string{"eventstore", "snapshot"}, foreign: [][]string{ids, small, caches}},
	{pkg: "aggregate/admission", may: []string{"eventstore"}, foreign: [][]string{limiters}},

	// PostgreSQL.
	{pkg: "eventstore/postgres", may: []string{"eventstore", "snapshot"}, foreign: [][]string{ids, pgx, small}},
	{pkg: "internal/parking", may: []string{"eventstore", "internal/retry"}, foreign: [][]string{ids, pgx}},
	{pkg: "internal/consumer", may: []string{"eventstore", "internal/owner", "internal/retry", "internal/parking", "internal/panics"}, foreign: [][]string{ids, pgx, small}},
	{pkg: "projection", may: []string{"eventstore", "internal/consumer", "internal/parking", "internal/retry"}, foreign: [][]string{ids, pgx, small, codecs}},
	{pkg: "internal/flow", may: []string{"eventstore"}, foreign: [][]string{ids}},
	{pkg: "internal/timers", may: []string{"eventstore", "internal/owner", "internal/panics", "internal/retry"}, foreign: [][]string{ids, pgx, small}},
	{
		pkg: "saga", may: []string{"eventstore", "internal/consumer", "internal/flow", "internal/panics", "internal/parking", "internal/retry", "internal/timers"},
		foreign: [][]string{ids, pgx, small, codecs},
	},
	{
		pkg: "outbox", may: []string{"eventstore", "internal/consumer", "internal/panics", "internal/parking", "internal/retry"},
		foreign: [][]string{ids, pgx, small, watermill},
	},
	{
		pkg: "outbox/inbox", may: []string{"eventstore", "internal/consumer", "internal/panics", "internal/parking", "internal/retry", "outbox"},
		foreign: [][]string{ids, pgx, small, watermill},
	},
	{pkg: "outbox/deadletter", may: []string{"eventstore", "internal/parking", "internal/retry"}, foreign: [][]string{ids, pgx}},

	{
		pkg: "outbox/commands", may: []string{"eventstore", "internal/consumer", "internal/flow", "outbox", "aggregate", "aggregate/bus", "aggregate/admission"},
		foreign: [][]string{ids, pgx, small, codecs},
	},

	// What tests import: the package it is for, the core, testing.
	{pkg: "eventstore/eventstoretest", may: []string{"eventstore", "internal/testscale"}, foreign: [][]string{ids, testTools, small}},
	{pkg: "eventstore/postgres/postgrestest", may: []string{"eventstore/postgres", "internal/pgserver"}, foreign: [][]string{pgx, {testcontainers}}},
	{pkg: "snapshot/snapshottest", may: []string{"snapshot", "eventstore"}, foreign: [][]string{ids, testTools}},
	{pkg: "aggregate/aggregatetest", may: []string{"aggregate", "eventstore", "snapshot"}, foreign: [][]string{ids, testTools}},
	{pkg: "projection/projectiontest", may: []string{"projection", "eventstore"}, foreign: [][]string{ids, pgx, testTools}},
	{
		// Scenarios with crashes run on PostgreSQL, with a bus and a dispatcher.
		pkg: "saga/sagatest", may: []string{
			"saga", "eventstore", "eventstore/postgres", "eventstore/postgres/postgrestest", "aggregate", "aggregate/bus", "outbox",
			"outbox/commands", "outbox/deadletter", "internal/flow", "internal/timers", "internal/testscale",
		},
		foreign: [][]string{ids, pgx, testTools},
	},
	{pkg: "outbox/outboxtest", may: []string{"outbox", "eventstore"}, foreign: [][]string{ids, testTools, watermill}},

	// Plumbing and programs.
	{pkg: "internal/pgserver", foreign: [][]string{pgx}},
	{pkg: "internal/testscale"},
	{pkg: "internal/livetest", may: []string{"eventstore/postgres", "eventstore/postgres/postgrestest"}, foreign: [][]string{pgx}},
	{pkg: "internal/retry", may: []string{"eventstore"}},
	{pkg: "internal/retry/retrytest", may: []string{"eventstore", "internal/retry"}},
	{pkg: "internal/owner"},
	{pkg: "internal/panics"},
	{pkg: "internal/archtest"},
	{pkg: "internal/docs"},
	{pkg: "cmd/...", may: []string{"..."}, foreign: [][]string{{anything}}},
	{pkg: "examples/...", may: []string{"..."}, foreign: [][]string{{anything}}},

	// Parts that grow below the ones above, each with the rights of its parent.
	{pkg: "eventstore/privacy/...", may: []string{"eventstore"}, foreign: [][]string{ids, {"github.com/tink-crypto/tink-go/v2"}}},
	{pkg: "aggregate/...", may: []string{"aggregate", "eventstore", "snapshot", "internal/panics"}, foreign: [][]string{ids, small}},
	{pkg: "projection/...", may: []string{"projection", "eventstore", "internal/consumer"}, foreign: [][]string{ids, pgx, small, codecs}},
	{pkg: "saga/...", may: []string{"saga", "eventstore", "internal/consumer", "internal/owner", "internal/panics", "internal/retry", "internal/timers"}, foreign: [][]string{ids, pgx, small, codecs, {"github.com/adhocore/gronx"}}},
	{pkg: "telemetry/...", may: []string{"..."}, foreign: [][]string{telemetry}},
}

// neverReach lists what packages must not reach by any number of steps.
var neverReach = []struct{ pkg, prefix, why string }{
	{"eventstore", pgx[0], "the core does not know PostgreSQL"},
	{"eventstore/memory", pgx[0], "the engine in memory does not know PostgreSQL"},
	{"snapshot", pgx[0], "the core does not know PostgreSQL"},
	{"aggregate", pgx[0], "a domain compiles without PostgreSQL"},
	{"aggregate/aggregatetest", pgx[0], "a domain's tests run without PostgreSQL"},
	{"aggregate/bus", pgx[0], "commands are handled without knowing PostgreSQL"},
	{"aggregate/commandhttp", pgx[0], "an API is declared without knowing PostgreSQL"},
	{"projection", module + "eventstore/postgres", "projections take the log as an interface"},
	{"saga", module + "eventstore/postgres", "sagas take the log as an interface"},
	{"saga", module + "aggregate", "sagas declare the one method that they need"},
	{"outbox", module + "eventstore/postgres", "the relay takes the log as an interface"},
	{"examples/ledger/journal", pgx[0], "a domain compiles without PostgreSQL"},
	{"examples/ledger/account", pgx[0], "a domain compiles without PostgreSQL"},
	{"examples/ledger/entry", pgx[0], "a domain compiles without PostgreSQL"},
	{"examples/ledger/book", pgx[0], "a domain compiles without PostgreSQL"},
	{"examples/checkout/order", pgx[0], "a domain compiles without PostgreSQL"},
	{"examples/checkout/payment", pgx[0], "a domain compiles without PostgreSQL"},
	{"examples/checkout/shipping", pgx[0], "a domain compiles without PostgreSQL"},
	{"examples/checkout/stock", pgx[0], "a domain compiles without PostgreSQL"},
}

// ownedBy lists foreign modules that few packages import, each with what is below it.
var ownedBy = []struct {
	prefix string
	pkgs   []string
	tests  []string // packages whose tests may too
}{
	{testcontainers, []string{"eventstore/postgres/postgrestest"}, nil},
	// Programs choose a broker, and measure with one; nothing else of the product knows that there is any.
	{watermill[0], []string{"outbox", "outbox/inbox", "examples", "bench", "integration"}, []string{"projection"}},
}

func ruleFor(pkg string) (rule, bool) {
	for _, r := range rules {
		if r.pkg == pkg || strings.HasSuffix(r.pkg, "/...") && within(pkg, strings.TrimSuffix(r.pkg, "/...")) {
			return r, true
		}
	}
	return rule{}, false
}

// allows says whether the rule lets a package import a path that is not of the
// standard library.
func (r rule) allows(path string) bool {
	if own, ok := strings.CutPrefix(path, module); ok || path+"/" == module {
		return slices.ContainsFunc(r.may, func(m string) bool {
			return m == "..." || m == own || strings.HasSuffix(m, "/...") && within(own, strings.TrimSuffix(m, "/..."))
		}) || isBelow(own, r.pkg)
	}
	for _, group := range r.foreign {
		for _, prefix := range group {
			if prefix == anything || within(path, prefix) {
				return true
			}
		}
	}
	return false
}

// isBelow lets the packages of one wide rule import each other.
func isBelow(own, pkg string) bool {
	return strings.HasSuffix(pkg, "/...") && within(own, strings.TrimSuffix(pkg, "/..."))
}

// within says whether a path is a prefix's or below it.
func within(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// standard says whether an import path is of the standard library.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// forTests says whether a package is made for tests, by its name.
func forTests(pkg string) bool { return strings.HasSuffix(pkg, "test") }
