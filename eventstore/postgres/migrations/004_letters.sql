-- Dead letters: sequences that are set aside, so that others go on; and relays that share the partitions.
--
-- Serves programs from version 4 on. Workers of older programs would apply what is behind a message that was set aside.

-- A sequence that does not go on: from first_position on nothing of it takes effect, until it is released. What it waits
-- for is an open letter: of the message that failed. Without one, what is queued behind goes on in its own time.
-- Whoever adds or removes a row raises parked_rev of the segment in the same transaction, so that nobody commits who
-- does not know.
CREATE TABLE {schema}.parked (
  consumer       text COLLATE "C" NOT NULL,
  version        int    NOT NULL,
  topic          text COLLATE "C" NOT NULL DEFAULT '',       -- of relays; '' otherwise
  sequence       text COLLATE "C" NOT NULL,                  -- the partition key
  partition      int    NOT NULL,
  state          text   NOT NULL,                            -- 'retrying' until due_at, 'parked' until somebody acts, 'draining'
  due_at         timestamptz,                                -- of 'retrying'
  first_position bigint NOT NULL,                            -- the first message that has not taken effect
  last_position  bigint NOT NULL,                            -- the last that is known
  previous       bigint NOT NULL DEFAULT 0,                  -- of relays: a message of its topic and partition before the first
  queued         bigint NOT NULL DEFAULT 0,                  -- how many are known behind the one that failed
  hash           bigint,                                     -- FNV-1a of the sequence, by which a token names a stream; null: not known
  since          timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (consumer, version, topic, sequence),
  FOREIGN KEY (consumer, version) REFERENCES {schema}.consumers ON DELETE CASCADE
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX parked_first ON {schema}.parked (consumer, version, first_position);
CREATE INDEX parked_partition ON {schema}.parked (consumer, version, partition);

-- A message that failed, unchanged, and what is known of its failures. One for each consumer and message, for ever: failing
-- again after a redrive continues its story.
CREATE TABLE {schema}.letters (
  letter          uuid PRIMARY KEY,
  consumer        text COLLATE "C" NOT NULL,
  version         int    NOT NULL,
  topic           text COLLATE "C" NOT NULL DEFAULT '',
  sequence        text COLLATE "C" NOT NULL,
  partition       int    NOT NULL,
  position        bigint NOT NULL,
  state           text   NOT NULL,                           -- open: 'retrying', 'parked'; closed: 'applied', 'discarded', 'taken over',
                                                             -- 'behind' (one of its sequence was put back before it)
  kind            text   NOT NULL,                           -- of the last failure: 'transient', 'permanent'
  attempts        int    NOT NULL,                           -- in all
  round           int    NOT NULL,                           -- of them since it was set aside or redriven last
  fingerprint     text COLLATE "C" NOT NULL,                 -- failures of one cause
  errors          text[] NOT NULL,                           -- the last failure, outermost first
  first_errors    text[] NOT NULL,                           -- the first
  first_failed_at timestamptz NOT NULL,
  last_failed_at  timestamptz NOT NULL,
  handler         text   NOT NULL,
  program         text   NOT NULL,                           -- module and version of the program that failed last
  closed_at       timestamptz,
  closed_by       text   NOT NULL DEFAULT '',
  reason          text   NOT NULL DEFAULT '',                -- why it was discarded
  -- the message
  id              uuid   NOT NULL,
  stream_id       text COLLATE "C" NOT NULL DEFAULT '',      -- '' for a message of its own
  stream_version  bigint NOT NULL DEFAULT 0,
  type            text COLLATE "C" NOT NULL,
  schema_version  int    NOT NULL,
  flags           int    NOT NULL,
  content_type    text   NOT NULL,
  tenant          text   NOT NULL,
  correlation_id  text   NOT NULL,
  causation_id    text   NOT NULL,
  actor           text   NOT NULL,
  headers         bytea  NOT NULL,
  data            bytea  NOT NULL,
  recorded_at     timestamptz NOT NULL,
  UNIQUE (consumer, version, topic, position)
);
CREATE INDEX letters_open ON {schema}.letters (consumer, version, topic, sequence, position) WHERE state IN ('retrying', 'parked');
CREATE INDEX letters_group ON {schema}.letters (consumer, version, fingerprint, last_failed_at) WHERE state IN ('retrying', 'parked');
CREATE INDEX letters_closed ON {schema}.letters (closed_at) WHERE closed_at IS NOT NULL;

-- What is queued behind a letter where it cannot be read again from the log: messages of a topic. A row without bytes
-- stands for a message that its relay has set aside, and that will come marked as redriven.
CREATE TABLE {schema}.held (
  consumer       text COLLATE "C" NOT NULL,
  version        int    NOT NULL,
  topic          text COLLATE "C" NOT NULL DEFAULT '',
  sequence       text COLLATE "C" NOT NULL,
  position       bigint NOT NULL,
  previous       bigint NOT NULL DEFAULT 0,
  partition      int    NOT NULL,
  present        boolean NOT NULL DEFAULT true,
  id             uuid,
  stream_id      text COLLATE "C" NOT NULL DEFAULT '',
  stream_version bigint NOT NULL DEFAULT 0,
  type           text COLLATE "C" NOT NULL DEFAULT '',
  schema_version int    NOT NULL DEFAULT 0,
  flags          int    NOT NULL DEFAULT 0,
  content_type   text   NOT NULL DEFAULT '',
  tenant         text   NOT NULL DEFAULT '',
  correlation_id text   NOT NULL DEFAULT '',
  causation_id   text   NOT NULL DEFAULT '',
  actor          text   NOT NULL DEFAULT '',
  headers        bytea  NOT NULL DEFAULT '',
  data           bytea  NOT NULL DEFAULT '',
  recorded_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  held_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (consumer, version, topic, sequence, position),
  FOREIGN KEY (consumer, version) REFERENCES {schema}.consumers ON DELETE CASCADE
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- What an inbox waits for: something missing in a partition (rows with the topic 'gap', which wait for it and not for their
-- sequence), and messages that their relay has set aside.
CREATE INDEX held_gap ON {schema}.held (consumer, version, partition, position) WHERE topic = 'gap';
CREATE INDEX held_awaited ON {schema}.held (consumer, version, sequence) WHERE NOT present;

-- The last version of what messages with whole states are about, of inboxes that follow those.
CREATE TABLE {schema}.inbox_versions (
  consumer text COLLATE "C" NOT NULL,
  version  int    NOT NULL,
  key      text COLLATE "C" NOT NULL,
  last     bigint NOT NULL,
  PRIMARY KEY (consumer, version, key),
  FOREIGN KEY (consumer, version) REFERENCES {schema}.consumers ON DELETE CASCADE
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- What somebody has decided to try again: a plan is frozen when it is made. The owners of the segments carry it out, in its
-- order and at its rate, and what is done is committed with the effects.
CREATE TABLE {schema}.redrives (
  redrive     uuid PRIMARY KEY,
  consumer    text COLLATE "C" NOT NULL,
  version     int    NOT NULL,
  state       text   NOT NULL DEFAULT 'running',             -- 'running', 'done', 'stopped', 'cancelled'
  actor       text   NOT NULL,
  reason      text   NOT NULL DEFAULT '',
  selection   text   NOT NULL,                               -- what was asked for, as people read it
  rate        double precision NOT NULL,                     -- sequences a second; 0: no limit
  canary      int    NOT NULL DEFAULT 0,                     -- so many must succeed before the others begin
  most        int    NOT NULL DEFAULT 1,                     -- so many may fail before it stops; 0: any number
  items       int    NOT NULL,
  succeeded   int    NOT NULL DEFAULT 0,
  failed      int    NOT NULL DEFAULT 0,
  next_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at    timestamptz
);
CREATE INDEX redrives_running ON {schema}.redrives (consumer, version, created_at) WHERE state = 'running';
CREATE TABLE {schema}.redrive_items (
  redrive   uuid   NOT NULL REFERENCES {schema}.redrives ON DELETE CASCADE,
  item      int    NOT NULL,                                 -- its place, from 1
  letter    uuid   NOT NULL,
  topic     text COLLATE "C" NOT NULL DEFAULT '',
  sequence  text COLLATE "C" NOT NULL,
  partition int    NOT NULL,
  state     text   NOT NULL DEFAULT 'waiting',               -- 'waiting', 'running', 'succeeded', 'failed', 'skipped' (no longer open)
  ended_at  timestamptz,
  PRIMARY KEY (redrive, item)
) WITH (fillfactor = 70);
CREATE INDEX redrive_items_waiting ON {schema}.redrive_items (redrive, item) WHERE state IN ('waiting', 'running');

-- Who has done what to letters.
CREATE TABLE {schema}.letter_actions (
  action     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor      text NOT NULL,
  what       text NOT NULL,                                  -- 'redrive', 'cancel', 'discard', 'undo', 'accept gap'
  consumer   text COLLATE "C" NOT NULL,
  version    int  NOT NULL,
  letter     uuid,
  redrive    uuid,
  reason     text NOT NULL DEFAULT ''
);
CREATE INDEX letter_actions_letter ON {schema}.letter_actions (letter) WHERE letter IS NOT NULL;

-- Processes that share the segments of a consumer; see the relay. Who has not been seen for longer than the lease is gone.
CREATE TABLE {schema}.members (
  consumer   text COLLATE "C" NOT NULL,
  version    int  NOT NULL,
  member     text COLLATE "C" NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (consumer, version, member),
  FOREIGN KEY (consumer, version) REFERENCES {schema}.consumers ON DELETE CASCADE
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The streams of one partition key, for what is read again of a sequence. It stays small where streams have no key of
-- their own; appends to streams wait while it is built.
CREATE INDEX streams_key ON {schema}.streams (partition_key) WHERE partition_key <> '';

-- As before, and: p_raise says that the transaction has added or removed parked sequences of the segment.
CREATE FUNCTION {schema}.commit_batch(p_consumer text, p_version int, p_segment int, p_epoch bigint, p_parked_rev bigint,
    p_old_floor bigint, p_new_floor bigint, p_topics text[], p_partitions int[], p_old bigint[], p_new bigint[], p_raise boolean)
  RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
  n    int := cardinality(p_topics);
  fits bigint;
  s    record;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'daybook: commit_batch needs read committed, not %', current_setting('transaction_isolation') USING ERRCODE = 'DB001';
  END IF;
  IF n <> cardinality(p_partitions) OR n <> cardinality(p_old) OR n <> cardinality(p_new) THEN
    RAISE EXCEPTION 'daybook: commit_batch got arrays of different length' USING ERRCODE = 'DB001';
  END IF;
  UPDATE {schema}.segments AS g SET floor = p_new_floor, committed_at = clock_timestamp(), parked_rev = g.parked_rev + p_raise::int
   WHERE g.consumer = p_consumer AND g.version = p_version AND g.segment = p_segment
     AND g.epoch = p_epoch AND g.parked_rev = p_parked_rev AND g.floor = p_old_floor AND p_new_floor >= p_old_floor;
  IF NOT FOUND THEN
    SELECT g.floor, g.epoch, g.parked_rev INTO s FROM {schema}.segments g
     WHERE g.consumer = p_consumer AND g.version = p_version AND g.segment = p_segment;
    IF s.epoch = p_epoch AND s.parked_rev = p_parked_rev THEN
      RAISE EXCEPTION 'daybook: segment % of % v% is at %, not %, or would go back to %',
        p_segment, p_consumer, p_version, s.floor, p_old_floor, p_new_floor USING ERRCODE = 'DB003';
    END IF;
    RAISE EXCEPTION 'daybook: segment % of % v% is no longer at epoch % and parked revision %',
      p_segment, p_consumer, p_version, p_epoch, p_parked_rev USING ERRCODE = 'DB002';
  END IF;
  IF n = 0 THEN RETURN; END IF;
  WITH u AS MATERIALIZED (
    SELECT e.t, e.p, e.o, e.n, k.applied
      FROM unnest(p_topics, p_partitions, p_old, p_new) AS e(t, p, o, n)
      LEFT JOIN LATERAL (SELECT c.applied FROM {schema}.checkpoints c
                          WHERE c.consumer = p_consumer AND c.version = p_version AND c.topic = e.t AND c.partition = e.p LIMIT 1) k ON true),
  ok AS MATERIALIZED (SELECT u.t, u.p, u.o, u.n FROM u WHERE coalesce(u.applied, 0) = u.o AND u.n >= u.o),
  gone AS (
    DELETE FROM {schema}.checkpoints c USING ok
     WHERE c.consumer = p_consumer AND c.version = p_version AND c.topic = ok.t AND c.partition = ok.p
       AND ok.o <> 0 AND ok.n <= p_new_floor
    RETURNING 1),
  moved AS (
    UPDATE {schema}.checkpoints c SET applied = ok.n FROM ok
     WHERE c.consumer = p_consumer AND c.version = p_version AND c.topic = ok.t AND c.partition = ok.p
       AND ok.o <> 0 AND ok.n > p_new_floor
    RETURNING 1),
  made AS (
    INSERT INTO {schema}.checkpoints (consumer, version, topic, partition, applied)
    SELECT p_consumer, p_version, ok.t, ok.p, ok.n FROM ok WHERE ok.o = 0 AND ok.n > p_new_floor
    ON CONFLICT DO NOTHING
    RETURNING 1)
  SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM moved) + (SELECT count(*) FROM made)
         + (SELECT count(*) FROM ok WHERE ok.o = 0 AND ok.n <= p_new_floor) INTO fits;
  IF fits <> n THEN
    RAISE EXCEPTION 'daybook: % of % checkpoints of % v% are not where they should be, or would go back',
      n - fits, n, p_consumer, p_version USING ERRCODE = 'DB003';
  END IF;
END $$;

-- A worker of an older program, which knows of no sequences that are set aside, must not go on.
CREATE OR REPLACE FUNCTION {schema}.commit_batch(p_consumer text, p_version int, p_segment int, p_epoch bigint, p_parked_rev bigint,
    p_old_floor bigint, p_new_floor bigint, p_topics text[], p_partitions int[], p_old bigint[], p_new bigint[])
  RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'daybook: this program is older than the schema, which was migrated while it ran: restart it with the new release' USING ERRCODE = 'DB006';
END $$;

-- Relays share the partitions: the one segment becomes four, each beginning where the one was.
WITH old AS (
  DELETE FROM {schema}.segments g WHERE g.consumer = 'outbox-relay' AND g.version = 1 RETURNING g.floor),
c AS (
  INSERT INTO {schema}.consumers (consumer, version, kind) SELECT 'outbox-relay', 2, 'relay' FROM old
  RETURNING consumer, version)
INSERT INTO {schema}.segments (consumer, version, segment, first_partition, last_partition, floor)
SELECT c.consumer, c.version, i, s.partitions * i / n.n, s.partitions * (i + 1) / n.n - 1, old.floor
  FROM c, old, {schema}.store s, LATERAL (SELECT least(4, s.partitions) AS n) n, generate_series(0, n.n - 1) AS i;
INSERT INTO {schema}.outbox_tails (consumer, version, topic, partition, position)
SELECT t.consumer, 2, t.topic, t.partition, t.position FROM {schema}.outbox_tails t WHERE t.consumer = 'outbox-relay' AND t.version = 1;
DELETE FROM {schema}.consumers WHERE consumer = 'outbox-relay' AND version = 1;

-- As before, and: what a relay has set aside stays, until it is released.
CREATE OR REPLACE FUNCTION {schema}.raise_cleaned(hold interval, now timestamptz DEFAULT clock_timestamp()) RETURNS bigint
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  cleaned bigint;
  passed  bigint;
  held    bigint;
BEGIN
  -- One at a time: what is found below must still hold when it is written.
  SELECT s.outbox_cleaned INTO cleaned FROM {schema}.store s WHERE s.singleton FOR NO KEY UPDATE;
  PERFORM pg_advisory_xact_lock(hashtextextended('daybook relay ' || '{schema}.outbox_tails'::regclass::oid, 0));
  passed := (SELECT min(g.floor) FROM {schema}.segments g WHERE g.consumer = 'outbox-relay');
  IF passed IS NULL THEN
    passed := coalesce((SELECT min(g.floor) FROM {schema}.segments g JOIN {schema}.consumers c ON c.consumer = g.consumer AND c.version = g.version
                         WHERE g.consumer = 'commands' AND g.version = 1 AND c.kind = 'dispatcher'), 0);
    IF passed <= cleaned THEN RETURN cleaned; END IF;
    held := (SELECT o.first_position FROM {schema}.outbox o
              WHERE o.first_position > cleaned AND o.first_position <= passed AND o.topic <> 'commands'
              ORDER BY o.first_position LIMIT 1);
    passed := least(passed, held - 1);
  END IF;
  -- A later statement than that of the floor, which moves in the transaction that sets aside.
  passed := least(passed, (SELECT min(x.first_position) - 1
                             FROM {schema}.consumers c
                            CROSS JOIN LATERAL (SELECT p.first_position FROM {schema}.parked p WHERE p.consumer = c.consumer AND p.version = c.version
                                                 ORDER BY p.first_position LIMIT 1) x
                            WHERE c.consumer = 'outbox-relay'));
  IF passed <= cleaned THEN RETURN cleaned; END IF;
  -- In this order, as each statement sees what has been committed by then: whoever begins to follow between the two is seen
  -- by the second, and until then by the first as a topic that nobody follows.
  held := (SELECT o.first_position FROM {schema}.outbox o
            WHERE o.first_position > cleaned AND o.first_position <= passed AND o.recorded_at > raise_cleaned.now - hold
              AND NOT EXISTS (SELECT FROM {schema}.subscribers s WHERE s.topic = o.topic AND s.state = 'following')
            ORDER BY o.first_position LIMIT 1);
  passed := least(passed, held - 1);
  IF passed <= cleaned THEN RETURN cleaned; END IF;
  held := (SELECT min(f.at)
             FROM {schema}.subscribers s
             LEFT JOIN LATERAL (SELECT min(g.floor) AS floor FROM {schema}.segments g
                                 WHERE g.consumer = s.consumer AND g.version = s.version) p ON true,
             LATERAL {schema}.first_not_passed(s.topic, greatest(coalesce(p.floor, 0), s.start_position)) f
            WHERE s.state = 'following');
  passed := least(passed, held - 1);
  IF passed <= cleaned THEN RETURN cleaned; END IF;
  INSERT INTO {schema}.outbox_topics AS t (topic, cleaned)
  SELECT o.topic, max(o.last_position) FROM {schema}.outbox o
   WHERE o.first_position >= (cleaned >> 12) << 12 AND o.first_position <= passed AND o.last_position <= passed
   GROUP BY o.topic
  ON CONFLICT (topic) DO UPDATE SET cleaned = greatest(t.cleaned, excluded.cleaned);
  UPDATE {schema}.store s SET outbox_cleaned = passed WHERE s.singleton;
  RETURN passed;
END $$;
