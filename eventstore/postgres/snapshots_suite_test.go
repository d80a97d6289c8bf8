package postgres_test

import (
	"testing"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/snapshot"
	"github.com/daybook-go/daybook/snapshot/snapshottest"
)

// The snapshots of this engine keep what those in memory keep.
func TestSnapshotSuite(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, func(t *testing.T) (eventstore.Store, snapshot.Store) {
		store, _ := freshStore(t, postgres.Config{})
		return store, store.Snapshots()
	})
}

// On a log of many ranges the events behind a snapshot are read by another statement.
func TestSnapshotSuiteOverManyRanges(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, func(t *testing.T) (eventstore.Store, snapshot.Store) {
		pool := smallRanges(t)
		mustExec(t, pool, `SELECT daybook.ensure_ranges(20)`)
		store := openStore(t, pool, postgres.Config{})
		return store, store.Snapshots()
	})
}
