-- The stream: how far each consumer of the outbox has come, who must have passed a message before it may go, and how it
-- goes.
--
-- Serves programs from version 1 on.

-- A row never crosses a border of 4,096 positions, so that the rows that are open at a cursor are found without a record
-- of them: they begin in the cursor's block.
ALTER TABLE {schema}.outbox ADD CONSTRAINT outbox_block CHECK (first_position >> 12 = last_position >> 12);

-- What a consumer reads: '' the log, or a topic that carries all of it; else 'topic <name>'.
ALTER TABLE {schema}.consumers ADD COLUMN source text COLLATE "C" NOT NULL DEFAULT '';

-- Messages at or below it may be gone. It rises in a transaction of its own before they go.
ALTER TABLE {schema}.store ADD COLUMN outbox_cleaned bigint NOT NULL DEFAULT 0;

-- The same for the messages of one topic: the last of them that may be gone. A consumer that has passed it has lost nothing.
CREATE TABLE {schema}.outbox_topics (
  topic   text COLLATE "C" PRIMARY KEY,
  cleaned bigint NOT NULL
);

-- Nothing is left of the outbox in this range, and nothing will come.
ALTER TABLE {schema}.ranges ADD COLUMN outbox_emptied boolean NOT NULL DEFAULT false;

-- The last message sent of each topic and partition; committed with the cursor of the relay.
CREATE TABLE {schema}.outbox_tails (
  consumer  text COLLATE "C" NOT NULL,
  version   int    NOT NULL,
  topic     text COLLATE "C" NOT NULL,
  partition int    NOT NULL,
  position  bigint NOT NULL,
  PRIMARY KEY (consumer, version, topic, partition),
  FOREIGN KEY (consumer, version) REFERENCES {schema}.consumers ON DELETE CASCADE
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Who must have passed a message before it may go. A group is the set of its rows; one that stayed behind for longer than
-- the retention is lost and holds nothing back. start_position is where a consumer begins that wants only what is new.
CREATE TABLE {schema}.subscribers (
  topic      text COLLATE "C" NOT NULL,
  group_name text COLLATE "C" NOT NULL,
  consumer   text COLLATE "C" NOT NULL,
  version    int  NOT NULL,
  state      text NOT NULL DEFAULT 'following' CHECK (state IN ('following', 'lost')),
  since      timestamptz NOT NULL DEFAULT clock_timestamp(),
  start_position bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (topic, group_name, consumer, version),
  FOREIGN KEY (consumer, version) REFERENCES {schema}.consumers ON DELETE CASCADE
);
CREATE INDEX subscribers_consumer ON {schema}.subscribers (consumer, version);

-- Epochs that this store had before.
CREATE TABLE {schema}.epochs (
  epoch    uuid PRIMARY KEY,
  ended_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE FUNCTION {schema}.keep_epoch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO {schema}.epochs (epoch) VALUES (OLD.epoch) ON CONFLICT (epoch) DO UPDATE SET ended_at = excluded.ended_at;
  RETURN NULL;
END $$;
CREATE TRIGGER keep_epoch AFTER UPDATE OF epoch ON {schema}.store
  FOR EACH ROW WHEN (OLD.epoch IS DISTINCT FROM NEW.epoch) EXECUTE FUNCTION {schema}.keep_epoch();

-- As before, and: an entry says where a partition was, 0 standing for no row, and where it is now. A row that is not
-- beyond the new floor goes. Entries that do not fit raise; the segment's row comes first, so whoever holds it is alone
-- with the checkpoints of its partitions.
CREATE OR REPLACE FUNCTION {schema}.commit_batch(p_consumer text, p_version int, p_segment int, p_epoch bigint, p_parked_rev bigint,
    p_old_floor bigint, p_new_floor bigint, p_topics text[], p_partitions int[], p_old bigint[], p_new bigint[])
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
  UPDATE {schema}.segments AS g SET floor = p_new_floor, committed_at = clock_timestamp()
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

-- The first row of a topic that a consumer has not passed. Range by range, up to the first: a query over all of them would
-- lock every one. A row that is open at the floor may begin in the range before.
CREATE FUNCTION {schema}.first_not_passed(topic text, floor bigint, OUT at bigint, OUT recorded timestamptz)
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  rng record;
BEGIN
  FOR rng IN
    SELECT r.first_position AS lo, r.next_position AS hi FROM {schema}.ranges r
     WHERE NOT r.outbox_emptied AND r.next_position > (first_not_passed.floor >> 12) << 12
       AND r.first_position <= coalesce(pg_sequence_last_value('{schema}.log_position'::regclass), 0)
     ORDER BY r.first_position
  LOOP
    SELECT o.first_position, o.recorded_at INTO at, recorded FROM {schema}.outbox o
     WHERE o.first_position >= greatest(rng.lo, (first_not_passed.floor >> 12) << 12) AND o.first_position < rng.hi
       AND o.topic = first_not_passed.topic AND o.last_position > first_not_passed.floor
     ORDER BY o.first_position LIMIT 1;
    EXIT WHEN at IS NOT NULL;
  END LOOP;
END $$;

-- Cleaning is three steps, each a transaction of its own; callers in several processes follow each other.
--
-- The first declares subscribers lost whose oldest message not passed is older than the retention, and names them. One that
-- was lost and has come up follows again.
CREATE FUNCTION {schema}.declare_lost(retention interval, now timestamptz DEFAULT clock_timestamp())
  RETURNS TABLE (topic text, group_name text, consumer text, version int, floor bigint, oldest timestamptz)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  sub  record;
  late boolean;
  past timestamptz;
BEGIN
  FOR sub IN
    SELECT s.topic, s.group_name, s.consumer, s.version, s.state,
           coalesce((SELECT min(g.floor) FROM {schema}.segments g WHERE g.consumer = s.consumer AND g.version = s.version), 0) AS floor,
           coalesce((SELECT t.cleaned FROM {schema}.outbox_topics t WHERE t.topic = s.topic), 0) AS cleaned
      FROM {schema}.subscribers s
     ORDER BY s.topic, s.group_name, s.consumer, s.version
  LOOP
    past := (SELECT f.recorded FROM {schema}.first_not_passed(sub.topic, sub.floor) f);
    late := coalesce(past < declare_lost.now - retention, false);
    CONTINUE WHEN (sub.state = 'lost') = late OR sub.state = 'lost' AND sub.floor < sub.cleaned;
    UPDATE {schema}.subscribers s SET state = CASE WHEN late THEN 'lost' ELSE 'following' END, since = declare_lost.now
     WHERE s.topic = sub.topic AND s.group_name = sub.group_name AND s.consumer = sub.consumer AND s.version = sub.version
       AND s.state = sub.state;
    IF FOUND AND late THEN
      topic := sub.topic; group_name := sub.group_name; consumer := sub.consumer; version := sub.version;
      floor := sub.floor; oldest := past;
      RETURN NEXT;
    END IF;
  END LOOP;
END $$;

-- The second says how far messages may go: what the relay has sent, up to the first message that somebody who follows has
-- not passed. A topic that nobody follows keeps its messages for a while, for those who begin to.
CREATE FUNCTION {schema}.raise_cleaned(hold interval, now timestamptz DEFAULT clock_timestamp()) RETURNS bigint
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  cleaned bigint;
  passed  bigint;
  held    bigint;
BEGIN
  -- One at a time: what is found below must still hold when it is written.
  SELECT s.outbox_cleaned INTO cleaned FROM {schema}.store s WHERE s.singleton FOR NO KEY UPDATE;
  passed := coalesce((SELECT min(g.floor) FROM {schema}.segments g WHERE g.consumer = 'outbox-relay' AND g.version = 1), 0);
  IF passed <= cleaned THEN RETURN cleaned; END IF;
  held := (SELECT min(f.at)
             FROM {schema}.subscribers s
             LEFT JOIN LATERAL (SELECT min(g.floor) AS floor FROM {schema}.segments g
                                 WHERE g.consumer = s.consumer AND g.version = s.version) p ON true,
             LATERAL {schema}.first_not_passed(s.topic, greatest(coalesce(p.floor, 0), s.start_position)) f
            WHERE s.state = 'following');
  passed := least(passed, held - 1);
  IF passed <= cleaned THEN RETURN cleaned; END IF;
  held := (SELECT o.first_position FROM {schema}.outbox o
            WHERE o.first_position > cleaned AND o.first_position <= passed AND o.recorded_at > raise_cleaned.now - hold
              AND NOT EXISTS (SELECT FROM {schema}.subscribers s WHERE s.topic = o.topic AND s.state = 'following')
            ORDER BY o.first_position LIMIT 1);
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

-- The third takes away rows at or below what the second has committed: at most one range by TRUNCATE, which locks that
-- one table for a moment and gives up after 50 ms of waiting (its rows are not counted); else at most `batch` rows. The row with the greatest first
-- position stays, since the end of the log is read from it. TRUNCATE is not seen through snapshots: readers read the
-- messages first and outbox_cleaned in a later statement.
CREATE FUNCTION {schema}.drop_cleaned(batch int, OUT removed bigint, OUT emptied int, OUT more boolean)
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_custom_plan
  SET lock_timeout = '50ms' AS $$
DECLARE
  cleaned bigint;
  top     bigint;
  rng     record;
  gone    bigint;
BEGIN
  removed := 0; emptied := 0; more := false;
  IF NOT pg_try_advisory_xact_lock(hashtextextended('daybook clean {tag}', 0)) THEN RETURN; END IF;
  SELECT s.outbox_cleaned INTO cleaned FROM {schema}.store s WHERE s.xmin <> coalesce(pg_current_xact_id_if_assigned()::xid, '0'::xid);
  IF NOT FOUND THEN
    RAISE EXCEPTION 'daybook: drop_cleaned must run after the transaction of raise_cleaned, not in it' USING ERRCODE = 'DB001';
  END IF;
  FOR rng IN
    SELECT r.first_position AS lo, r.next_position AS hi FROM {schema}.ranges r
     WHERE NOT r.outbox_emptied AND r.first_position <= coalesce(pg_sequence_last_value('{schema}.log_position'::regclass), 0)
     ORDER BY r.first_position DESC
  LOOP
    SELECT max(o.first_position) INTO top FROM {schema}.outbox o WHERE o.first_position >= rng.lo AND o.first_position < rng.hi;
    EXIT WHEN top IS NOT NULL;
  END LOOP;
  FOR rng IN
    SELECT r.first_position AS lo, r.next_position AS hi, format('{schema}.%I', 'outbox_' || r.first_position) AS name FROM {schema}.ranges r
     WHERE NOT r.outbox_emptied AND r.first_position <= cleaned ORDER BY r.first_position
  LOOP
    -- The last row of the range ends with its block, which may lie in the next range.
    IF (rng.hi - 1) | 4095 <= cleaned AND top >= rng.hi THEN
      BEGIN
        EXECUTE format('TRUNCATE %s', rng.name);
        UPDATE {schema}.ranges r SET outbox_emptied = true WHERE r.first_position = rng.lo;
        emptied := 1; more := true;
        RETURN;
      EXCEPTION WHEN lock_not_available THEN
        NULL; -- somebody reads it for long: by rows, then
      END;
    END IF;
    EXECUTE format('DELETE FROM %1$s WHERE ctid = ANY (ARRAY(SELECT o.ctid FROM %1$s o
      WHERE o.first_position <= $1 AND o.last_position <= $1 AND o.first_position < $2 ORDER BY o.first_position LIMIT $3))', rng.name)
      USING cleaned, top, batch;
    GET DIAGNOSTICS gone = ROW_COUNT;
    removed := removed + gone;
    IF gone > 0 THEN
      more := true;
      RETURN;
    END IF;
  END LOOP;
END $$;

REVOKE EXECUTE ON FUNCTION {schema}.first_not_passed(text, bigint), {schema}.declare_lost(interval, timestamptz), {schema}.raise_cleaned(interval, timestamptz), {schema}.drop_cleaned(int) FROM PUBLIC;
