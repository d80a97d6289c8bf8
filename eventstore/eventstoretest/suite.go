package eventstoretest

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/testscale"
)

// Open returns an empty store that is closed by a cleanup of t.
type Open func(t testing.TB) eventstore.Store

// Log is what consumers read; every engine's log has these methods.
type Log interface {
	ReadPage(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error)
	Wait(ctx context.Context, after eventstore.Position) error
}

// Features says what an engine has beyond [eventstore.Store].
type Features struct {
	// Log returns the log of a store. The tests of log pages run only when it is set.
	Log func(eventstore.Store) Log
	// Once says that a store is an [eventstore.OnceAppender] and an [eventstore.StreamLocker] too. Their tests run only
	// when it is set.
	Once bool
}

// topic is one part of the suite. Stores made by open are checked at the end of the test that opened them.
type topic func(t *testing.T, open Open)

// Run runs the suite. Topics run in parallel.
func Run(t *testing.T, open Open, features Features) {
	t.Helper()
	checked := func(t testing.TB) eventstore.Store {
		t.Helper()
		store := open(t)
		t.Cleanup(func() { Check(t, store) })
		return store
	}
	topics := map[string]topic{
		"Append":           testAppend,
		"ExpectedVersions": testExpectedVersions,
		"SeveralStreams":   testSeveralStreams,
		"Conflicts":        testConflicts,
		"Repeated":         testRepeated,
		"Metadata":         testMetadata,
		"Refused":          testRefused,
		"Sizes":            testSizes,
		"ReadStream":       testReadStream,
		"ReadAll":          testReadAll,
		"Pages":            testPages,
		"Unchanging":       testUnchanging,
		"Cancelled":        testCancelled,
		"Races":            testRaces,
		"WriteSkew":        testWriteSkew,
		"ManyWriters":      testManyWriters,
		"Watched":          testWatched,
		"Model":            testModel,
	}
	if features.Log != nil {
		topics["Log"] = func(t *testing.T, open Open) { testLog(t, open, features.Log) }
		topics["LogConcurrent"] = func(t *testing.T, open Open) { testLogConcurrent(t, open, features.Log) }
	}
	if features.Once {
		topics["Once"] = testOnce
		topics["OnceRaces"] = testOnceRaces
		topics["Locked"] = testLocked
		topics["LockedRaces"] = testLockedRaces
	}
	for name, test := range topics {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, checked)
		})
	}
}

// fewer is n at full size and a fifth of the scaled number otherwise, for what shows a fault within a few rounds and runs on
// every engine, several times on some.
func fewer(n int) int {
	if testscale.Factor() >= 1 {
		return testscale.N(n)
	}
	return max(8, testscale.N(n)/5)
}

// stream returns a stream that no other test uses.
func stream(category string) eventstore.StreamID {
	return eventstore.NewStreamID(category, uuid.NewString())
}

func event(eventType, data string) eventstore.EventData {
	return eventstore.EventData{Type: eventType, Data: []byte(data)}
}

// events returns n events whose payload is their number.
func events(eventType string, n int) []eventstore.EventData {
	list := make([]eventstore.EventData, n)
	for i := range list {
		list[i] = event(eventType, fmt.Sprint(i+1))
	}
	return list
}

func mustAppend(t testing.TB, store eventstore.Appender, writes ...eventstore.Write) eventstore.AppendResult {
	t.Helper()
	result, err := store.Append(context.Background(), writes...)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return result
}

func readStream(t testing.TB, store eventstore.StreamReader, id eventstore.StreamID, r eventstore.Range) []eventstore.RecordedEvent {
	t.Helper()
	var list []eventstore.RecordedEvent
	for e, err := range store.ReadStream(context.Background(), id, r) {
		if err != nil {
			t.Fatalf("read stream %q: %v", id, err)
		}
		list = append(list, e)
	}
	return list
}

func readAll(t testing.TB, store eventstore.AllReader, after eventstore.Position, f eventstore.Filter) []eventstore.RecordedEvent {
	t.Helper()
	var list []eventstore.RecordedEvent
	for e, err := range store.ReadAll(context.Background(), after, f) {
		if err != nil {
			t.Fatalf("read log: %v", err)
		}
		list = append(list, e)
	}
	return list
}

// payloads returns the payloads of events, for short comparisons.
func payloads(list []eventstore.RecordedEvent) []string {
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = string(e.Data)
	}
	return texts
}
