package eventstore

// FailureKind says what a failure means for the message that met it, and for those behind it.
type FailureKind int

const (
	// Transient: another attempt may succeed. The message's sequence is set aside and tried again after a pause, the other
	// keys go on. After the last attempt it is parked. Errors that a [Classifier] does not know are transient.
	Transient FailureKind = iota
	// Permanent: no attempt will succeed until somebody mends the message or the code. The sequence is parked at once.
	Permanent
	// Environment: something that every message needs is away. Everything of the consumer waits, nobody's attempts are used
	// up, and one message at a time finds out whether it is back.
	Environment
)

// String names the kind, as it is stored.
func (k FailureKind) String() string {
	switch k {
	case Transient:
		return "transient"
	case Permanent:
		return "permanent"
	case Environment:
		return "environment"
	}
	return "unknown"
}

// Classifier judges what a handler or a broker returned. It is called with the error as it came, never with nil, from
// many goroutines at once. What the connection to Daybook's own database says is judged before, and never reaches it.
type Classifier func(error) FailureKind
