-- The log: one sequence, one row per stream, events and outbox in ranges of positions; and the tables of those who read
-- it. {schema} is the quoted schema, {tag} a short hash of its name that keeps the settings of two stores apart.

CREATE TABLE {schema}.store (
  singleton         boolean     PRIMARY KEY DEFAULT true CHECK (singleton),
  epoch             uuid        NOT NULL DEFAULT gen_random_uuid(),  -- changes when history may have changed
  system_identifier bigint      NOT NULL,                            -- the cluster and database that the epoch is for
  database_oid      oid         NOT NULL,
  partitions        int         NOT NULL CHECK (partitions BETWEEN 1 AND 4096),
  range_size        bigint      NOT NULL CHECK (range_size >= 100),
  created_at        timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO {schema}.store (system_identifier, database_oid, partitions, range_size)
SELECT c.system_identifier, d.oid, {partitions}, {range_size}
  FROM pg_control_system() c, pg_database d WHERE d.datname = current_database();

-- START 1 and CACHE 1 are part of the safe head's proof: a writer registers the last value drawn, and NULL stands for 0.
CREATE SEQUENCE {schema}.log_position AS bigint START 1 CACHE 1 NO CYCLE;

-- The arbiter of versions. Version 0: the row was made only to be locked, the stream does not exist.
CREATE TABLE {schema}.streams (
  stream_id        text COLLATE "C" NOT NULL PRIMARY KEY,
  version          bigint  NOT NULL,
  partition        int     NOT NULL,
  closed           boolean NOT NULL DEFAULT false,
  truncated_before bigint  NOT NULL DEFAULT 0,
  floor_position   bigint  NOT NULL DEFAULT 0,                -- no event of the stream lies at or below: prunes old ranges
  partition_key    text COLLATE "C" NOT NULL DEFAULT ''       -- '' stands for the stream itself
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE {schema}.events (
  position       bigint      NOT NULL DEFAULT nextval('{schema}.log_position'),
  version        bigint      NOT NULL CHECK (version > 0),
  recorded_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  id             uuid        NOT NULL,
  partition      int         NOT NULL,
  schema_version int         NOT NULL DEFAULT 1,
  flags          int         NOT NULL DEFAULT 0,
  stream_id      text COLLATE "C" NOT NULL,
  partition_key  text COLLATE "C" NOT NULL DEFAULT '',        -- '' stands for the stream itself
  type           text COLLATE "C" NOT NULL,
  content_type   text COLLATE "C" NOT NULL DEFAULT 'application/octet-stream',
  tenant         text COLLATE "C" NOT NULL DEFAULT '',
  correlation_id text COLLATE "C" NOT NULL DEFAULT '',
  causation_id   text COLLATE "C" NOT NULL DEFAULT '',
  actor          text COLLATE "C" NOT NULL DEFAULT '',
  headers        bytea       NOT NULL DEFAULT '',             -- '' or a msgpack map of text to text
  data           bytea       NOT NULL,
  PRIMARY KEY (position)
) PARTITION BY RANGE (position);
-- UNIQUE (stream_id, version) stands on each range; an index on the parent would only double it.

CREATE TABLE {schema}.outbox (
  first_position bigint NOT NULL DEFAULT nextval('{schema}.log_position'),  -- partition key and page key
  last_position  bigint NOT NULL,
  from_version   bigint,
  to_version     bigint,
  id             uuid,
  partition      int    NOT NULL,
  schema_version int    NOT NULL DEFAULT 1,
  flags          int    NOT NULL DEFAULT 0,
  topic          text COLLATE "C" NOT NULL,
  key            text COLLATE "C" NOT NULL,
  stream_id      text COLLATE "C",                            -- thin row: a run of events
  type           text COLLATE "C",                            -- row with its own bytes: type, data and envelope
  content_type   text COLLATE "C",
  tenant         text COLLATE "C" NOT NULL DEFAULT '',
  correlation_id text COLLATE "C" NOT NULL DEFAULT '',
  causation_id   text COLLATE "C" NOT NULL DEFAULT '',
  actor          text COLLATE "C" NOT NULL DEFAULT '',
  headers        bytea  NOT NULL DEFAULT '',
  data           bytea,
  recorded_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (first_position, topic),
  CHECK (last_position >= first_position),
  CHECK ((data IS NULL) <> (stream_id IS NULL)),
  CHECK (data IS NULL OR first_position = last_position)
) PARTITION BY RANGE (first_position);
CREATE INDEX outbox_page ON {schema}.outbox (partition, first_position);

-- A writer registers "I will write somewhere above X" before it draws its first position; readers stay at or below the
-- lowest X. Once per transaction; the setting is undone with a savepoint exactly as the lock is.
CREATE FUNCTION {schema}.register_position() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  locked boolean;
  marked text;
BEGIN
  IF coalesce(current_setting('daybook.registered_{tag}', true), '') <> '1' THEN
    -- Assignments of expressions: PERFORM would start a query for each.
    locked := pg_advisory_xact_lock_shared(
      ((('{schema}.log_position'::regclass::oid::bigint + 2147483648) % 4294967296) - 2147483648)::int,
      (coalesce(pg_sequence_last_value('{schema}.log_position'::regclass), 0) & 2147483647)::int) IS NOT NULL;
    marked := set_config('daybook.registered_{tag}', '1', true);
  END IF;
  RETURN NULL;
END $$;

CREATE FUNCTION {schema}.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'daybook: % of % refused: events are never changed; append a correcting event', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'DB004';
END $$;

CREATE TRIGGER register BEFORE INSERT ON {schema}.events FOR EACH STATEMENT EXECUTE FUNCTION {schema}.register_position();
CREATE TRIGGER register BEFORE INSERT ON {schema}.outbox FOR EACH STATEMENT EXECUTE FUNCTION {schema}.register_position();
CREATE TRIGGER refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.events
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();

CREATE TABLE {schema}.ranges (
  first_position bigint PRIMARY KEY,
  next_position  bigint NOT NULL UNIQUE,   -- exclusive
  added_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  CHECK (next_position > first_position)
);

-- Adds one range of positions to events and outbox. LIKE, CHECK and ATTACH take SHARE UPDATE EXCLUSIVE on the parents
-- and nothing stronger on anything in use, so it runs beside appends. Statement triggers of a parent do not fire for an
-- insert made directly into a range, so each range has its own.
CREATE PROCEDURE {schema}.add_range(lo bigint, hi bigint) LANGUAGE plpgsql AS $$
DECLARE
  e text := format('events_%s', lo);
  o text := format('outbox_%s', lo);
BEGIN
  EXECUTE format('CREATE TABLE {schema}.%I (LIKE {schema}.events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)
    WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)', e);
  EXECUTE format('ALTER TABLE {schema}.%I ADD PRIMARY KEY (position), ADD CONSTRAINT range CHECK (position >= %s AND position < %s)', e, lo, hi);
  EXECUTE format('CREATE UNIQUE INDEX %I ON {schema}.%I (stream_id, version)', e || '_stream_version', e);
  EXECUTE format('CREATE TRIGGER register BEFORE INSERT ON {schema}.%I FOR EACH STATEMENT EXECUTE FUNCTION {schema}.register_position()', e);
  EXECUTE format('CREATE TRIGGER refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.%I FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change()', e);
  EXECUTE format('CREATE TABLE {schema}.%I (LIKE {schema}.outbox INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)
    WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)', o);
  EXECUTE format('ALTER TABLE {schema}.%I ADD PRIMARY KEY (first_position, topic), ADD CONSTRAINT range CHECK (first_position >= %s AND first_position < %s)', o, lo, hi);
  EXECUTE format('CREATE INDEX ON {schema}.%I (partition, first_position)', o);
  EXECUTE format('CREATE TRIGGER register BEFORE INSERT ON {schema}.%I FOR EACH STATEMENT EXECUTE FUNCTION {schema}.register_position()', o);
  EXECUTE format('ALTER TABLE {schema}.events ATTACH PARTITION {schema}.%I FOR VALUES FROM (%s) TO (%s)', e, lo, hi);
  EXECUTE format('ALTER TABLE {schema}.outbox ATTACH PARTITION {schema}.%I FOR VALUES FROM (%s) TO (%s)', o, lo, hi);
  EXECUTE format('ALTER TABLE {schema}.%I DROP CONSTRAINT range', e);
  EXECUTE format('ALTER TABLE {schema}.%I DROP CONSTRAINT range', o);
  INSERT INTO {schema}.ranges (first_position, next_position) VALUES (lo, hi);
END $$;

-- Keeps `ahead` empty ranges in front of the sequence; returns how many it added. It runs with the rights of its owner,
-- so that a role without DDL rights can call it. Callers in several processes follow each other.
CREATE FUNCTION {schema}.ensure_ranges(ahead int) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  size   bigint := (SELECT s.range_size FROM {schema}.store s);
  target bigint := coalesce(pg_sequence_last_value('{schema}.log_position'::regclass), 0) + 1 + least(greatest(ahead, 1), 128) * size;
  top    bigint;
  added  int := 0;
BEGIN
  top := (SELECT max(r.next_position) FROM {schema}.ranges r);
  IF top >= target THEN RETURN 0; END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended('daybook ranges {tag}', 0));
  top := coalesce((SELECT max(r.next_position) FROM {schema}.ranges r), 1);
  WHILE top < target LOOP
    CALL {schema}.add_range(top, top + size);
    top := top + size;
    added := added + 1;
  END LOOP;
  RETURN added;
END $$;

-- FNV-1a, 64 bit, of the key's UTF-8 bytes, modulo n: the partition of a partition key. The state is kept in two
-- halves of 32 bit, since bigint is signed; the prime is 2^40 + 435.
CREATE FUNCTION {schema}.partition_of(key text, n int) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  bytes bytea  := convert_to(key, 'UTF8');
  hi    bigint := 3421674724;  -- 0xcbf29ce4
  lo    bigint := 2216829733;  -- 0x84222325
  low   bigint;
BEGIN
  FOR i IN 0 .. length(bytes) - 1 LOOP
    lo  := lo # get_byte(bytes, i);
    low := lo * 435;
    hi  := (hi * 435 + (low >> 32) + (lo << 8)) & 4294967295;
    lo  := low & 4294967295;
  END LOOP;
  RETURN (((hi % n) * (4294967296 % n) + lo % n) % n)::int;
END $$;

-- Consumers of the log: projections, later sagas and relays.
CREATE TABLE {schema}.consumers (
  consumer    text COLLATE "C" NOT NULL,
  version     int  NOT NULL,
  kind        text NOT NULL,
  fingerprint text NOT NULL DEFAULT '',
  state       text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'paused', 'stopped')),
  reason      text NOT NULL DEFAULT '',
  since       timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (consumer, version)
);

-- A segment is a set of partitions owned by one worker. Its floor holds for all of them; a partition that is ahead of
-- the floor has a row in checkpoints.
CREATE TABLE {schema}.segments (
  consumer        text COLLATE "C" NOT NULL,
  version         int    NOT NULL,
  segment         int    NOT NULL,
  first_partition int    NOT NULL,
  last_partition  int    NOT NULL,
  owner           text   NOT NULL DEFAULT '',
  epoch           bigint NOT NULL DEFAULT 0,      -- fencing: rises with every takeover
  parked_rev      bigint NOT NULL DEFAULT 0,      -- rises when a sequence is parked or released
  floor           bigint NOT NULL DEFAULT 0,
  expires_at      timestamptz NOT NULL DEFAULT '-infinity',
  committed_at    timestamptz,
  PRIMARY KEY (consumer, version, segment),
  FOREIGN KEY (consumer, version) REFERENCES {schema}.consumers ON DELETE CASCADE
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE {schema}.checkpoints (
  consumer  text COLLATE "C" NOT NULL,
  version   int    NOT NULL,
  topic     text COLLATE "C" NOT NULL DEFAULT '',
  partition int    NOT NULL,
  applied   bigint NOT NULL,
  PRIMARY KEY (consumer, version, topic, partition),
  FOREIGN KEY (consumer, version) REFERENCES {schema}.consumers ON DELETE CASCADE
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The last statement of every batch. It moves the checkpoint only for the owner of the segment, and raises otherwise, so
-- that a COMMIT sent in the same round trip cannot keep effects of a worker that was replaced. A plain UPDATE would
-- touch no row and let the COMMIT through. The setting keeps plans made on empty tables from outliving them.
CREATE FUNCTION {schema}.commit_batch(p_consumer text, p_version int, p_segment int, p_epoch bigint, p_parked_rev bigint,
    p_old_floor bigint, p_new_floor bigint, p_topics text[], p_partitions int[], p_old bigint[], p_new bigint[])
  RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  r record;
  s record;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'daybook: commit_batch needs read committed, not %', current_setting('transaction_isolation') USING ERRCODE = 'DB001';
  END IF;
  IF cardinality(p_topics) <> cardinality(p_partitions) OR cardinality(p_partitions) <> cardinality(p_old)
     OR cardinality(p_old) <> cardinality(p_new) THEN
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
  FOR r IN SELECT u.t, u.p, u.o, u.n FROM unnest(p_topics, p_partitions, p_old, p_new) AS u(t, p, o, n) ORDER BY u.t, u.p LOOP
    UPDATE {schema}.checkpoints c SET applied = r.n
     WHERE c.consumer = p_consumer AND c.version = p_version AND c.topic = r.t AND c.partition = r.p
       AND c.applied = r.o AND r.n >= r.o;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'daybook: partition % (topic %) of % v% is not at %', r.p, r.t, p_consumer, p_version, r.o USING ERRCODE = 'DB003';
    END IF;
  END LOOP;
END $$;

-- Snapshots are a cache: any row may be deleted at any time.
CREATE TABLE {schema}.snapshots (
  stream_id    text COLLATE "C" NOT NULL,
  fingerprint  text COLLATE "C" NOT NULL,
  version      bigint NOT NULL,
  position     bigint NOT NULL,
  content_type text COLLATE "C" NOT NULL,
  data         bytea  NOT NULL,
  taken_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (stream_id, fingerprint)
) WITH (fillfactor = 70);

-- The one that is written to, and two ahead of it.
SELECT {schema}.ensure_ranges(3);
