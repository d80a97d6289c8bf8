package eventstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"
)

const (
	// maxEvents bounds one append. Larger imports belong into several appends, since an append holds its positions,
	// and with them the head of the log, until it commits.
	maxEvents = 10_000
	// maxData bounds the payload of one event in bytes, maxTotal those of one append: PostgreSQL takes no message of a
	// gigabyte.
	maxData  = 64 << 20
	maxTotal = 512 << 20
)

// Prepare is for engines: it checks an append and completes its events with ids, defaults and the context's metadata,
// so that every engine accepts and refuses the same input. The writes passed in are not changed; the prepared events
// share their Data, and nothing else, with them. ownIDs reports
// whether every event came with an id of the caller's, which makes the append repeatable. The error is an
// [*InvalidError] that names the write and the event.
func Prepare(ctx context.Context, writes []Write) (prepared []Write, ownIDs bool, err error) {
	prepared = make([]Write, len(writes))
	seen := make(map[StreamID]bool, len(writes))
	shared := MetadataFrom(ctx)
	if err := shared.validate("context"); err != nil {
		return nil, false, err
	}
	total, size := 0, 0
	ids := make(map[uuid.UUID]struct{})
	for i, w := range writes {
		if err := checkWrite(w); err != nil {
			return nil, false, err
		}
		if seen[w.Stream] {
			return nil, false, &InvalidError{
				Field: "writes[" + strconv.Itoa(i) + "].Stream", Value: w.Stream.String(), Reason: "is named twice in one append",
				Remedy: "put all events of a stream into one write",
			}
		}
		seen[w.Stream] = true
		total += len(w.Events)
		events := make([]EventData, len(w.Events))
		for k, e := range w.Events {
			size += len(e.Data)
			events[k], err = completeEvent(e, shared)
			if _, twice := ids[e.ID]; twice && err == nil {
				err = &InvalidError{
					Field: "ID", Value: e.ID.String(), Reason: "is given to two events of one append", Remedy: "give each event an id of its own",
				}
			}
			if e.ID != (uuid.UUID{}) {
				ids[e.ID] = struct{}{}
			}
			if err != nil {
				return nil, false, fmt.Errorf("%w (event %d for stream %q)", err, k+1, w.Stream)
			}
		}
		w.Events = events
		prepared[i] = w
	}
	if total > maxEvents {
		return nil, false, &InvalidError{
			Field: "writes", Value: strconv.Itoa(total), Reason: fmt.Sprintf("have more than %d events", maxEvents),
			Remedy: "split the work into several appends",
		}
	}
	if size > maxTotal {
		return nil, false, &InvalidError{
			Field: "writes", Value: strconv.Itoa(size) + " bytes", Reason: "have more than 512 MiB of payloads",
			Remedy: "split the work into several appends",
		}
	}
	return prepared, total > 0 && len(ids) == total, nil
}

func checkWrite(w Write) error {
	if err := w.Stream.Validate(); err != nil {
		return err
	}
	if w.Expected.version < 0 {
		return &InvalidError{
			Field: "Expected", Value: strconv.FormatInt(int64(w.Expected.version), 10), Reason: "is negative",
			Remedy: "expect the version that was loaded, or NoStream",
		}
	}
	return checkLimitedText("PartitionKey", w.PartitionKey, maxStreamID)
}

func completeEvent(e EventData, shared Metadata) (EventData, error) {
	if e.Type == "" {
		return e, &InvalidError{Field: "Type", Value: "", Reason: "is empty", Remedy: "give the wire name of the event"}
	}
	if err := checkLimitedText("Type", e.Type, maxTypeName); err != nil {
		return e, err
	}
	if err := checkLimitedText("ContentType", e.ContentType, maxTypeName); err != nil {
		return e, err
	}
	if err := e.Metadata.validate("event"); err != nil {
		return e, err
	}
	if len(e.Data) > maxData {
		return e, &InvalidError{
			Field: "Data", Value: strconv.Itoa(len(e.Data)) + " bytes", Reason: "is larger than 64 MiB",
			Remedy: "store the bytes elsewhere and put their address into the event",
		}
	}
	if e.SchemaVersion < 0 || e.SchemaVersion > 1<<30 {
		return e, &InvalidError{
			Field: "SchemaVersion", Value: strconv.Itoa(e.SchemaVersion), Reason: "is out of range", Remedy: "count shapes from 1",
		}
	}
	if e.SchemaVersion == 0 {
		e.SchemaVersion = 1
	}
	if e.ContentType == "" {
		e.ContentType = "application/octet-stream"
	}
	if e.ID == (uuid.UUID{}) {
		id, err := uuid.NewV7()
		if err != nil {
			return e, fmt.Errorf("eventstore: make event id: %w", err)
		}
		e.ID = id
	}
	e.Metadata = e.Metadata.Merge(shared)
	return e, nil
}
