package provider

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// Cards with which a charge does not simply work.
const (
	CardDeclined = "declined"
	CardSilent   = "silent"
)

// script is what happens to the charge of an order.
type script struct {
	outcome string
	held    bool // the answer never comes, for the key's first request, or, of a silent card, for any
	// Of the webhook:
	copies int
	first  bool          // it comes before the answer
	late   time.Duration // how long it takes
}

// The outcomes of charges.
const (
	taken    = "taken"
	declined = "declined"
	busy     = "busy" // not tried; may be tried again under another key
	lost     = "lost" // the card is silent, and nothing was taken
	void     = "void" // refunded before it came
)

// scriptFor decides by the card, and for the rest by a hash of the order and a seed. again: it is not the first charge of
// the order.
func scriptFor(c Charge, seed int64, again bool) script {
	chance := chanceOf(c.Order, seed)
	switch {
	case c.Card == CardDeclined:
		return script{outcome: declined}
	case c.Card == CardSilent && chance%2 == 0:
		return script{outcome: lost, held: true}
	case c.Card == CardSilent:
		return script{outcome: taken, held: true} // the webhook comes after the refund
	case chance < 10 && !again:
		return script{outcome: busy}
	case chance < 25:
		return script{outcome: taken, copies: 2}
	case chance < 40:
		return script{outcome: taken, copies: 1, first: true, late: time.Second} // by Run only if it is not taken
	case chance < 50:
		return script{outcome: taken, copies: 1, late: 300 * time.Millisecond}
	case chance < 52:
		return script{outcome: taken, copies: 1, held: true}
	}
	return script{outcome: taken, copies: 1}
}

// chanceOf is from 0 to 99.
func chanceOf(order string, seed int64) uint64 {
	h := fnv.New64a()
	_ = binary.Write(h, binary.BigEndian, seed) // a hash takes everything
	_, _ = h.Write([]byte(order))
	sum := h.Sum64()
	return (sum ^ sum>>32) % 100
}
