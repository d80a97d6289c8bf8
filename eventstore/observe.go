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
	// ObserveWait is called after each wait for a token.
	ObserveWait(WaitObservation)
	// ObservePublish is called after each attempt of a relay to publish a page.
	ObservePublish(PublishObservation)
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

// NopObserver observes nothing.
type NopObserver struct{}

// ObserveAppend does nothing.
func (NopObserver) ObserveAppend(AppendObservation) {}

// ObserveBatch does nothing.
func (NopObserver) ObserveBatch(BatchObservation) {}

// ObserveWait does nothing.
func (NopObserver) ObserveWait(WaitObservation) {}

// ObservePublish does nothing.
func (NopObserver) ObservePublish(PublishObservation) {}

var _ Observer = NopObserver{}
