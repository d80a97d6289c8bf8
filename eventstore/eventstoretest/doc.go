// Package eventstoretest holds the suite that every engine of package eventstore passes, and the tools that it is made
// of: [Check] verifies the invariants of a whole log, [Watcher] reads a log while others write and is compared with the
// truth afterwards.
//
//	func TestStore(t *testing.T) {
//		eventstoretest.Run(t, func(t testing.TB) eventstore.Store { return open(t) }, eventstoretest.Features{
//			Log: func(s eventstore.Store) eventstoretest.Log { return s.(*Store).Log() },
//		})
//	}
//
// # Guarantees
//
//   - Every topic gets stores of its own from the function passed in, runs in parallel with the others and ends with
//     [Check].
//   - Tests that draw numbers print their seed.
//
// # Caveats
//
// The rounds of the concurrent tests follow the scale of the test run; a short run finds less.
package eventstoretest
