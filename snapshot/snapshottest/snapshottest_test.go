package snapshottest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/snapshot"
	"github.com/daybook-go/daybook/snapshot/snapshottest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, func(*testing.T) (eventstore.Store, snapshot.Store) {
		store := memory.New(memory.Config{})
		return store, store.Snapshots()
	})
}
