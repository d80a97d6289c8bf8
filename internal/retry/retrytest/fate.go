package retrytest

import (
	"errors"
	"fmt"
	"math"

	"github.com/daybook-go/daybook/eventstore"
)

const (
	// PoisonOneIn is how many messages there are for each that always fails.
	PoisonOneIn = 50
	// UnluckyShare is the probability that an attempt at any other message fails.
	UnluckyShare = 0.3
)

var (
	// ErrPoison: the message fails at every attempt.
	ErrPoison = errors.New("retrytest: poison")
	// ErrUnlucky: the attempt fails, another may not.
	ErrUnlucky = errors.New("retrytest: unlucky")
)

// Fate is what the handler of a message returns at an attempt: nil, or an error that is [ErrPoison] or [ErrUnlucky] and
// names the message and the attempt. Messages are counted from 0, attempts from 1. Attempts after a redrive go on
// counting.
func Fate(seed uint64, message, attempt int) error {
	if Poison(seed, message) {
		return fmt.Errorf("message %d, attempt %d: %w", message, attempt, ErrPoison)
	}
	if Chance(seed, message, attempt) < UnluckyShare {
		return fmt.Errorf("message %d, attempt %d: %w", message, attempt, ErrUnlucky)
	}
	return nil
}

// Poison says whether the message always fails.
func Poison(seed uint64, message int) bool {
	block := message / PoisonOneIn
	return message%PoisonOneIn == int(Chance(seed^0x9d5c, block, 0)*PoisonOneIn)
}

// Outcome is what must come of a message that is tried up to limit times: the attempts made, and whether the last of
// them succeeded. classified says that poison is given up at its first attempt, as [Classify] makes it.
func Outcome(seed uint64, message, limit int, classified bool) (attempts int, delivered bool) {
	for attempts = 1; ; attempts++ {
		err := Fate(seed, message, attempts)
		if err == nil {
			return attempts, true
		}
		if attempts >= limit || classified && Classify(err) == eventstore.Permanent {
			return attempts, false
		}
	}
}

// Classify knows poison: permanent. All else is transient.
func Classify(err error) eventstore.FailureKind {
	if errors.Is(err, ErrPoison) {
		return eventstore.Permanent
	}
	return eventstore.Transient
}

// Chance is a number in [0, 1) that depends on its arguments alone, uniform over each of them. It serves as the random
// function of a [retry.Policy] where two runs are to be compared.
func Chance(seed uint64, message, n int) float64 {
	h := mix(mix(mix(seed)^uint64(message)) ^ uint64(n))
	return float64(h>>11) / (1 << 53)
}

// mix spreads every bit over all: a product with an odd constant and shifts, twice.
func mix(h uint64) uint64 {
	h += math.MaxUint64 / 3 * 2
	for range 2 {
		h ^= h >> 32
		h *= 0xd6e8feb86659fd93
	}
	return h ^ h>>32
}
