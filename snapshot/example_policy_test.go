package snapshot_test

import (
	"fmt"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/snapshot"
)

// A snapshot is due when a command leaves at least so many events since the last one; a large append makes one only.
func ExampleEvery() {
	policy := snapshot.Every(100)
	due := func(last, version eventstore.Version) bool {
		return policy.Due(snapshot.Facts{Last: last, Version: version})
	}
	fmt.Println(due(0, 99), due(0, 100), due(100, 199), due(100, 750))

	policy.Revision = 2 // Evolve means something else than before: snapshots of revision 1 are not used
	fmt.Println(policy.Bound())
	// Output:
	// false true false true
	// 99 true
}

// When a year is closed, and otherwise every hundred events, but then not more often than once an hour.
func ExampleOr() {
	policy := snapshot.Or(
		snapshot.OnEvent(yearClosed),
		snapshot.And(snapshot.Every(100), snapshot.After(time.Hour)))
	policy.Keep = 3

	now := time.Date(2024, 12, 31, 23, 0, 0, 0, time.UTC)
	for _, f := range []snapshot.Facts{
		{Version: 100, Now: now, LastAt: now.Add(-time.Minute)},
		{Version: 100, Now: now, LastAt: now.Add(-time.Hour)},
		{Version: 7, Now: now, Events: []string{"year.closed"}},
	} {
		fmt.Println(policy.Due(f))
	}
	// Output:
	// false
	// true
	// true
}
