// Package livetest has what tests of things that run share: to start and stop them, to look at what they log and what is in
// the database, and to run them in processes of their own that are killed or stopped at named places.
//
// Every wait is bounded by [Patience]; none is expected to come near it.
package livetest
