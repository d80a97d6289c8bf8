package postgres

import (
	"context"

	"github.com/daybook-go/daybook/eventstore"
)

// HeadToken returns a token that stands for everything that was committed before the call, by whomever. Who waits for
// it sees the state of now, or a later one; it is for reports and for programs that have no token of a command.
func (s *Store) HeadToken(ctx context.Context) (eventstore.Token, error) {
	if _, err := s.SafeHead(ctx); err != nil { // raises the highest position known
		return eventstore.Token{}, err
	}
	highest := eventstore.PositionAt(s.head.highest.Load())
	if highest.IsZero() {
		return eventstore.Token{}, nil
	}
	marks := make([]eventstore.Mark, s.partitions)
	for partition := range marks {
		marks[partition] = eventstore.Mark{Partition: partition, Position: highest}
	}
	return eventstore.MakeToken(s.epoch, marks...), nil
}
