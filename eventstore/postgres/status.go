package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// Status is what an operator wants to know first.
type Status struct {
	Schema        string
	SchemaVersion int
	Epoch         EpochInfo
	// SafeHead is how far readers can read, Highest the highest position committed.
	SafeHead, Highest eventstore.Position
	// Blocker is who holds the head back, if anybody does.
	Blocker   *Blocker
	Consumers []ConsumerStatus
	// Slots are the replication slots of the server that keep more than a gigabyte of its write-ahead log, whoever made them:
	// Daybook uses none.
	Slots []SlotStatus
}

// SlotStatus is a replication slot that lags; see pg_replication_slots in PostgreSQL's manual.
type SlotStatus struct {
	Name string
	// Active: somebody reads it now.
	Active bool
	// Kept is how many bytes of write-ahead log the server cannot remove because of it.
	Kept int64
}

// ConsumerStatus is the state of one segment of one consumer.
type ConsumerStatus struct {
	Consumer, Kind string
	Version        int
	// Segment is the number of a range of partitions, from 0. A relay has four, anything else has one.
	Segment int
	// State is running, paused or stopped; Reason says why.
	State, Reason string
	Since         time.Time
	// Owner is who works on it now; empty when nobody does.
	Owner string
	// Applied is the position at or below which everything has taken effect; for an inline projection that is always all.
	Applied eventstore.Position
	// Positions is the distance to the safe head, an upper bound of the number of events behind.
	Positions int64
	// Oldest is when the first event not applied yet was recorded, for a relay the first message not sent, for who follows a
	// topic without all of the log the first message of it not applied; zero when there is none. Where a topic's message is
	// not among the next 1,000 rows of the outbox, it is when the last of these was recorded.
	Oldest time.Time
	// Parked is how many sequences of the segment's partitions are set aside because of a failure: those that are tried
	// again, those that wait for somebody, and those that go on with what was queued.
	Parked int64
}

// Foreign reports whether Applied is a position of another store, as an inbox has it. Then nothing is known here of how far
// it is behind: Positions and Oldest are zero, and the inbox's own Lag tells.
func (c ConsumerStatus) Foreign() bool { return c.Kind == "inbox" }

// Status reads the state of the store and of everything that consumes it. Its statements are bounded by the number of
// consumers and of what they have set aside, not of events.
func (s *Store) Status(ctx context.Context) (Status, error) {
	st := Status{Schema: s.cfg.Schema, SchemaVersion: latestVersion()}
	var err error
	if st.Epoch, err = readEpoch(ctx, s.pool, s.cfg.Schema); err != nil {
		return st, err
	}
	if st.SafeHead, err = s.SafeHead(ctx); err != nil {
		return st, err
	}
	st.Highest = eventstore.PositionAt(s.head.highest.Load())
	blocker, held, err := s.Blocker(ctx)
	if err != nil {
		return st, err
	}
	if held {
		st.Blocker = &blocker
	}
	p := newPipeline()
	p.add(s.sql.sequenceSettings, nil) // else the planner may collect and sort all rows of the outbox to take the first
	p.add(s.sql.consumers, func(rows pgx.Rows) (err error) {
		st.Consumers, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (ConsumerStatus, error) {
			return consumerStatus(row, st.SafeHead.Ordinal())
		})
		return err
	}, st.SafeHead.Ordinal())
	if err := s.run(ctx, p); err != nil {
		return st, fmt.Errorf("postgres: read consumers: %w", err)
	}
	rows, err := s.pool.Query(ctx, slotsSQL, slotLags)
	if err != nil {
		return st, fmt.Errorf("postgres: read replication slots: %w", err)
	}
	if st.Slots, err = pgx.CollectRows(rows, pgx.RowToStructByPos[SlotStatus]); err != nil {
		return st, fmt.Errorf("postgres: read replication slots: %w", err)
	}
	return st, nil
}

func consumerStatus(row pgx.CollectableRow, head int64) (ConsumerStatus, error) {
	var c ConsumerStatus
	var applied int64
	var oldest *time.Time
	err := row.Scan(&c.Consumer, &c.Version, &c.Kind, &c.Segment, &c.State, &c.Reason, &c.Since, &c.Owner, &applied, &oldest, &c.Parked)
	c.Applied = eventstore.PositionAt(applied)
	if c.Foreign() {
		return c, err
	}
	c.Positions = max(head-applied, 0)
	if oldest != nil {
		c.Oldest = oldest.UTC()
	}
	return c, err
}

// slotLags is how many bytes of write-ahead log a slot may keep before anybody is told.
const slotLags = 1 << 30

const slotsSQL = `
SELECT slot_name::text, active, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint
  FROM pg_replication_slots
 WHERE pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) >= $1::bigint
 ORDER BY slot_name`

// oldestUnsent is when the first message that a relay's segment g has not sent was recorded: of each partition the first,
// by the index on partitions, from the block of positions on that the floor is in.
const oldestUnsent = `
         (SELECT min(m.recorded_at) FROM generate_series(g.first_partition, g.last_partition) AS p(n), LATERAL (
            SELECT o.recorded_at FROM {schema}.outbox o
             WHERE o.partition = p.n AND o.first_position >= (g.floor >> 12) << 12 AND o.last_position > g.floor AND o.first_position <= $1::bigint
             ORDER BY o.first_position LIMIT 1) m)`

// consumersSQL looks at no more than 1,000 rows of the outbox for who follows a topic: of a quiet one there may be none
// among millions. Whether there is one beyond them is known from what the relays have sent last.
const consumersSQL = `
WITH aside AS MATERIALIZED (SELECT consumer, version, partition, count(*) AS n FROM {schema}.parked GROUP BY consumer, version, partition)
SELECT c.consumer, c.version, c.kind, coalesce(g.segment, 0), c.state, c.reason, c.since,
       CASE WHEN g.expires_at > clock_timestamp() THEN g.owner ELSE '' END, coalesce(g.floor, $1::bigint),
       CASE WHEN g.floor < $1::bigint AND c.kind = 'relay' THEN` + oldestUnsent + `
            WHEN g.floor < $1::bigint AND c.source LIKE 'topic %' THEN
         (SELECT coalesce(min(x.recorded_at) FILTER (WHERE x.topic = substr(c.source, 7)),
                          CASE WHEN count(*) = 1000 AND EXISTS (SELECT FROM {schema}.outbox_tails t
                                      WHERE t.consumer = 'outbox-relay' AND t.topic = substr(c.source, 7) AND t.position > g.floor) THEN max(x.recorded_at) END)
            FROM (SELECT o.recorded_at, o.topic FROM {schema}.outbox o
                   WHERE o.first_position >= (g.floor >> 12) << 12 AND o.last_position > g.floor AND o.first_position <= $1::bigint
                   ORDER BY o.first_position LIMIT 1000) x)
            WHEN g.floor < $1::bigint THEN
         (SELECT e.recorded_at FROM {schema}.events e WHERE e.position > g.floor AND e.position <= $1::bigint ORDER BY e.position LIMIT 1) END,
       (SELECT coalesce(sum(a.n), 0)::bigint FROM aside a WHERE a.consumer = c.consumer AND a.version = c.version
           AND a.partition BETWEEN g.first_partition AND g.last_partition)
  FROM {schema}.consumers c LEFT JOIN {schema}.segments g USING (consumer, version)
 ORDER BY c.consumer, c.version, g.segment`
