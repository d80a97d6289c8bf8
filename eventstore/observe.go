package eventstore

import "time"

// Observer is told what the parts of Daybook do, for metrics and traces. Methods are called on the path of the work,
// from many goroutines at once: they must be quick and must not block. Embed [NopObserver] to implement a part of it,
// so that methods added later do not break the program.
type Observer interface {
	// ObserveAppend is called after each append, failed ones included.
	ObserveAppend(AppendObservation)
	// ObserveBatch is called after each batch that a consumer committed or gave up.
	ObserveBatch(BatchObservation)
	// ObserveFailure is called for each failed attempt at a message, once it is written down, and for each that found
	// something away.
	ObserveFailure(FailureObservation)
	// ObserveParked is called when a consumer takes over, and after each change of what it has set aside.
	ObserveParked(ParkedObservation)
	// ObserveWait is called after each wait for a token.
	ObserveWait(WaitObservation)
	// ObservePublish is called after each attempt of a relay to publish a page.
	ObservePublish(PublishObservation)
	// ObserveLoad is called after each load of an aggregate.
	ObserveLoad(LoadObservation)
	// ObserveCommand is called after each command.
	ObserveCommand(CommandObservation)
	// ObserveSnapshot is called for each snapshot that was due.
	ObserveSnapshot(SnapshotObservation)
	// ObserveAdmission is called for each request that was let in or sent away.
	ObserveAdmission(AdmissionObservation)
}

// AppendObservation describes one append.
type AppendObservation struct {
	Streams, Events int
	Duration        time.Duration
	Err             error // nil when the append was stored
}

// BatchObservation describes one batch of a consumer.
type BatchObservation struct {
	Consumer string
	Version  int
	Events   int
	// Through is the position up to which everything is applied now.
	Through Position
	// Marks are the single partitions that the batch has brought further than that, when the events came from a
	// published stream.
	Marks    []Mark
	Duration time.Duration
	Err      error // nil when the batch was committed
}

// FailureObservation describes one failed attempt at a message.
type FailureObservation struct {
	Consumer string
	Version  int
	// Topic is that of a relay's message, Type the message's type.
	Topic, Type string
	Kind        FailureKind
	// Attempt is how often the message was tried, this time included; 0 when something was away, which does not count.
	Attempt int
	// Parked: there is no other attempt before somebody asks for one.
	Parked bool
	Err    error
}

// ParkedObservation says how many sequences a consumer has set aside, in the partitions that the worker owns.
type ParkedObservation struct {
	Consumer string
	Version  int
	// Retrying are tried again by themselves, Parked wait for people, and of Draining what is queued behind goes on.
	Retrying, Parked, Draining int
	// Oldest is since when the oldest of them has been set aside; zero when there is none.
	Oldest time.Time
}

// WaitObservation describes one wait for a token.
type WaitObservation struct {
	Consumers []string
	Duration  time.Duration
	Err       error // nil when the token was reached
}

// PublishObservation describes one attempt of a relay to publish a page of messages.
type PublishObservation struct {
	// Messages and Heads were taken by the broker. Heads are messages that only say how far a partition is complete.
	Messages, Heads int
	// Through is the position up to which everything is published when Err is nil.
	Through  Position
	Duration time.Duration
	Err      error // nil when the broker took all; else the rest is tried again
}

// LoadObservation describes one load of an aggregate.
type LoadObservation struct {
	Category string
	// Events is how many events were folded.
	Events int
	// Cached: the state came from the memory of the process; Snapshot: from a snapshot. Neither: from the events alone.
	Cached, Snapshot bool
	// Overshoot is how many events more than the policy of the snapshots promises were folded, because snapshots were
	// late or lost; see package snapshot.
	Overshoot int
	Duration  time.Duration
	Err       error
}

// CommandObservation describes one command.
type CommandObservation struct {
	// Name is the type of the command, or what was done: "handle account".
	Name string
	// Attempts is how often it was decided, Merged how often it was appended behind events that left its decision right.
	Attempts, Merged int
	// Repeated: its key was known, and the first outcome was returned.
	Repeated bool
	Events   int
	Duration time.Duration
	Err      error // nil when it was carried out
}

// SnapshotObservation describes a snapshot that was due.
type SnapshotObservation struct {
	Category string
	Bytes    int
	// Dropped: the queue was full, and the next command will try again.
	Dropped  bool
	Duration time.Duration
	Err      error // nil when it was stored
}

// AdmissionObservation describes one request at the door.
type AdmissionObservation struct {
	// Class is the priority, Tenant whose request it was.
	Class, Tenant string
	// Waited is how long it stood in the queue.
	Waited time.Duration
	// Queue and Limit are how many were waiting, and how many may run at once, when it was decided.
	Queue, Limit int
	Err          error // nil when it was let in
}

// NopObserver observes nothing.
type NopObserver struct{}

// ObserveAppend does nothing.
func (NopObserver) ObserveAppend(AppendObservation) {}

// ObserveBatch does nothing.
func (NopObserver) ObserveBatch(BatchObservation) {}

// ObserveFailure does nothing.
func (NopObserver) ObserveFailure(FailureObservation) {}

// ObserveParked does nothing.
func (NopObserver) ObserveParked(ParkedObservation) {}

// ObserveWait does nothing.
func (NopObserver) ObserveWait(WaitObservation) {}

// ObservePublish does nothing.
func (NopObserver) ObservePublish(PublishObservation) {}

// ObserveLoad does nothing.
func (NopObserver) ObserveLoad(LoadObservation) {}

// ObserveCommand does nothing.
func (NopObserver) ObserveCommand(CommandObservation) {}

// ObserveSnapshot does nothing.
func (NopObserver) ObserveSnapshot(SnapshotObservation) {}

// ObserveAdmission does nothing.
func (NopObserver) ObserveAdmission(AdmissionObservation) {}

var _ Observer = NopObserver{}
