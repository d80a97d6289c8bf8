package inbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// epochs are the histories of the publishing store that an inbox knows, as they stand in the record of what it follows:
// "topic ledger, epoch <uuid>, before <uuid> <uuid>".
type epochs struct {
	current uuid.UUID // zero until the first message
	earlier []uuid.UUID
}

func (e epochs) record(carries string) string {
	if e.current == uuid.Nil {
		return carries
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s, epoch %s", carries, e.current)
	for i, one := range e.earlier {
		if i == 0 {
			text.WriteString(", before")
		}
		text.WriteString(" " + one.String())
	}
	return text.String()
}

// cutRecord splits a record behind the name of the topic, which has no control characters, but may have anything else.
func cutRecord(record string) (carries, rest string, found bool) {
	if at := strings.LastIndex(record, recordEpoch); at >= 0 {
		return record[:at], record[at:], true
	}
	return record, "", false
}

const (
	recordEpoch   = ", epoch "
	recordEarlier = ", before "
)

func parseRecord(carries, record string) (epochs, bool) {
	var e epochs
	rest, ok := strings.CutPrefix(record, carries)
	if !ok || rest == "" {
		return e, ok
	}
	rest, ok = strings.CutPrefix(rest, recordEpoch)
	if !ok {
		return e, false
	}
	current, before, _ := strings.Cut(rest, recordEarlier)
	for i, text := range append([]string{current}, strings.Fields(before)...) {
		id, err := uuid.Parse(text)
		if err != nil {
			return e, false
		}
		if i == 0 {
			e.current = id
		} else {
			e.earlier = append(e.earlier, id)
		}
	}
	return e, true
}

// ours says whether a message is to be judged. What cannot be read is written down in the step, and what is of an earlier
// history passed by.
func (d *feed) ours(ctx context.Context, s *step, it *item) (bool, error) {
	one, in := it.deliveries[0], d.in
	switch {
	case one.err != nil:
		d.foreign(s, one, one.err)
		return false, nil
	case it.Topic != in.cfg.Topic:
		d.foreign(s, one, fmt.Errorf("inbox: it says that it is of topic %q, and came on %q", it.Topic, in.cfg.Topic))
		return false, nil
	case it.Epoch == in.epochs.current:
	case slices.Contains(in.epochs.earlier, it.Epoch):
		in.state.refused.Add(1)
		return false, nil
	case in.epochs.current == uuid.Nil:
		if err := d.adopt(ctx, it.Epoch); err != nil {
			return false, err
		}
	default:
		return false, consumer.Stop(&eventstore.HistoryError{
			Reason: fmt.Sprintf("topic %q carries a message of epoch %s, and the inbox follows epoch %s", in.cfg.Topic, it.Epoch, in.epochs.current),
			Remedy: "find out whether another store publishes on this topic, or whether the store that does was restored; if it was, " +
				"set right what the inbox had beyond that, and let it go on with inbox.Rebase",
		})
	}
	if it.Partition < 0 || it.Partition >= in.cfg.Partitions {
		d.foreign(s, one, fmt.Errorf("inbox: it is of partition %d, and Config.Partitions is %d", it.Partition, in.cfg.Partitions))
		return false, nil
	}
	return true, nil
}

// adopt records the first epoch. It is a fact that no later owner decides otherwise, so that it needs no fence.
func (d *feed) adopt(ctx context.Context, epoch uuid.UUID) error {
	in := d.in
	carries := source{in}.Carries()
	next := epochs{current: epoch}
	var record string
	if err := d.db.QueryRow(ctx, in.sql.record, in.ref.Name, in.ref.Version, carries, next.record(carries)).Scan(&record); err != nil {
		return fmt.Errorf("inbox: record the epoch that %s follows: %w", in.ref, err)
	}
	known, ok := parseRecord(carries, record)
	if !ok || known.current != epoch {
		return fmt.Errorf("inbox: the record of %s has changed to %q meanwhile", in.ref, record) // begin anew with it
	}
	in.epochs = known
	return nil
}

const recordSQL = `
UPDATE {schema}.consumers SET source = CASE WHEN source = $3 THEN $4 ELSE source END WHERE consumer = $1 AND version = $2 RETURNING source`
