package snapshot_test

import (
	"fmt"

	"github.com/daybook-go/daybook/snapshot"
)

// A snapshot is due when a command leaves at least so many events since the last one; a large append makes one only.
func ExampleEvery() {
	policy := snapshot.Every(100)
	fmt.Println(policy.Due(0, 99), policy.Due(0, 100), policy.Due(100, 199), policy.Due(100, 750))

	policy.Revision = 2 // Evolve means something else than before: snapshots of revision 1 are not used
	fmt.Println(policy.Every, policy.Revision)
	// Output:
	// false true false true
	// 100 2
}
