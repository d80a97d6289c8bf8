package inbox

import (
	"cmp"
	"slices"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox"
)

// item is a message that an inbox has to do something about, from the broker or from what it has stored.
type item struct {
	outbox.Received
	deliveries []delivery // to be acknowledged with it; none when it was stored
	since      time.Time  // when it came
	patient    bool       // it has waited for what should have come before it
}

// arrival is what is judged. What has been patient stands for itself and for the marker that has not come.
func (it *item) arrival() Arrival {
	a := Arrival{
		Position: it.Position, Previous: it.Previous, Head: it.Kind == outbox.KindHead, Skip: it.Kind == outbox.KindSkip, Redriven: it.Redriven,
	}
	if it.patient && it.Redriven {
		a.Head, a.Skip, a.Redriven = a.Skip, false, false
	}
	return a
}

// form orders what may come at one position: a marker before what it stands for.
func (it *item) form() int {
	switch {
	case it.Kind == outbox.KindHead:
		return 4
	case it.Kind == outbox.KindSkip && it.Redriven:
		return 1
	case it.Kind == outbox.KindSkip:
		return 0
	case it.Redriven:
		return 3
	}
	return 2
}

func compareItems(a, b *item) int {
	return cmp.Or(a.Position.Compare(b.Position), cmp.Compare(a.form(), b.form()))
}

// holds are messages of one partition that came before their predecessors, by position.
type holds []*item

// add keeps a message. Of two that are the same one is kept, and both are acknowledged with it.
func (h *holds) add(it *item) {
	at, found := slices.BinarySearchFunc(*h, it, compareItems)
	if found {
		(*h)[at].deliveries = append((*h)[at].deliveries, it.deliveries...)
		return
	}
	*h = slices.Insert(*h, at, it)
}

// next returns the first message if nothing lies any more between it and what was read, and forgets it.
func (h *holds) next(read eventstore.Position) *item {
	if len(*h) == 0 || (*h)[0].Previous.After(read) {
		return nil
	}
	first := (*h)[0]
	*h = slices.Delete(*h, 0, 1)
	return first
}

// oldest is when the message that has waited longest came.
func (h holds) oldest() (since time.Time) {
	for _, it := range h {
		if since.IsZero() || it.since.Before(since) {
			since = it.since
		}
	}
	return since
}
