package inbox

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
	"github.com/daybook-go/daybook/internal/retry"
)

// foreignTopic marks letters of messages that cannot be read. They have no sequence that could wait.
const foreignTopic = "unreadable"

// foreign writes down a message that cannot be read as a letter of its own, with its bytes and its headers. The same
// message again is the same letter.
func (d *feed) foreign(s *step, one delivery, cause error) {
	in := d.in
	in.state.refused.Add(1)
	err := &UnreadableError{Message: one.msg.UUID, Err: cause}
	in.state.complain(in.now(), err)
	headers, _ := eventstore.EncodeHeaders(one.msg.Metadata) // texts, which can always be encoded
	data := notNil(one.msg.Payload)
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(one.msg.UUID), headers, data} {
		_ = binary.Write(sum, binary.BigEndian, uint64(len(part))) // a hash has no error to give
		sum.Write(part)
	}
	digest := sum.Sum(nil)
	at := eventstore.PositionAt(int64(binary.BigEndian.Uint64(digest) >> 2)) // its place among letters, and none in any log
	owner := parking.Owner{Schema: in.cfg.Schema, Consumer: in.ref.Name, Version: in.ref.Version}
	now := in.now()
	key := fmt.Sprintf("%x", digest[:16])
	s.queue = append(s.queue, func(b *pgx.Batch) {
		b.Queue(in.sql.letter, parking.LetterID(owner, foreignTopic, at), owner.Consumer, owner.Version, foreignTopic, key, at.Ordinal(),
			eventstore.Permanent.String(), retry.Fingerprint(in.cfg.Name, eventstore.Permanent, err), retry.Chain(err), now, in.cfg.Name,
			parking.Program(), uuid.NewSHA1(uuid.Nil, digest), text(one.msg.Metadata["ce_type"]), notNil(headers), data)
	})
	in.cfg.Observer.ObserveFailure(eventstore.FailureObservation{
		Consumer: in.ref.Name, Version: in.ref.Version, Topic: in.cfg.Topic, Kind: eventstore.Permanent, Attempt: 1, Parked: true, Err: err,
	})
}

const letterSQL = `
INSERT INTO {schema}.letters AS l (letter, consumer, version, topic, sequence, partition, position, state, kind, attempts, round, fingerprint,
       errors, first_errors, first_failed_at, last_failed_at, handler, program, id, type, schema_version, flags, content_type, tenant,
       correlation_id, causation_id, actor, headers, data, recorded_at)
VALUES ($1, $2, $3, $4, $5, 0, $6, 'parked', $7, 1, 1, $8, $9, $9, $10, $10, $11, $12, $13, $14, 0, 0, '', '', '', '', '', $15, $16, $10)
ON CONFLICT (letter) DO UPDATE SET attempts = l.attempts + 1, last_failed_at = excluded.last_failed_at, program = excluded.program`
