-- Commands under pressure: how commands with a key ended, several snapshots of a stream, and operations that are carried
-- out later.
--
-- Serves programs from version 1 on.

-- Requests are compared by a keyed hash, so that who reads the table cannot try out what was asked.
ALTER TABLE {schema}.store ADD COLUMN secret bytea NOT NULL
  DEFAULT (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
ALTER TABLE {schema}.store ALTER COLUMN secret DROP DEFAULT;

-- How commands with a key ended. Two parts take turns: one is written, the other is kept until it is older than keys must
-- be, and emptied as its turn comes. That a key is there once is seen to by the advisory lock of its writers. There are no
-- checks of columns: PostgreSQL reads each anew for every statement, which took a third of the time of storing an outcome.
CREATE TABLE {schema}.outcomes (
  part         smallint NOT NULL,
  scope        text COLLATE "C" NOT NULL,
  key          text COLLATE "C" NOT NULL,
  call         uuid     NOT NULL,
  request      bytea    NOT NULL,                            -- HMAC-SHA-256
  kind         smallint NOT NULL,                            -- 0 done, 1 refused, 2 expired
  code         text     NOT NULL DEFAULT '',
  reason       text     NOT NULL DEFAULT '',
  content_type text     NOT NULL DEFAULT '',
  result       bytea    NOT NULL DEFAULT '',
  streams      text[]   NOT NULL DEFAULT '{}',               -- with the version after the command, and how many events it wrote
  versions     bigint[] NOT NULL DEFAULT '{}',
  events       int[]    NOT NULL DEFAULT '{}',
  stored_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope, key, part)
) PARTITION BY LIST (part);
CREATE TABLE {schema}.outcomes_0 PARTITION OF {schema}.outcomes FOR VALUES IN (0);
CREATE TABLE {schema}.outcomes_1 PARTITION OF {schema}.outcomes FOR VALUES IN (1);

-- The part that is written is turn % 2.
CREATE TABLE {schema}.outcome_turn (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  turn      bigint      NOT NULL DEFAULT 0,
  since     timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO {schema}.outcome_turn DEFAULT VALUES;

-- Moves on when it is time. A part of turn s is written until turn s + 1 begins, and emptied as turn s + 2 does. A turn
-- lasts a quarter longer than `keep`, since a transaction that has begun in turn s may commit after it. What cannot be
-- emptied is kept, and the turn lasts longer.
CREATE FUNCTION {schema}.turn_outcomes(keep interval, now timestamptz DEFAULT clock_timestamp()) RETURNS boolean
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
  t record;
BEGIN
  IF keep IS NULL OR keep < interval '1 second' THEN
    RAISE EXCEPTION 'daybook: turn_outcomes: keep is %, shorter than a second', keep USING ERRCODE = 'DB001';
  END IF;
  SELECT o.turn, o.since INTO t FROM {schema}.outcome_turn o WHERE o.singleton FOR UPDATE SKIP LOCKED;
  IF NOT FOUND OR now < t.since + keep * 1.25 THEN
    RETURN false;
  END IF;
  EXECUTE format('TRUNCATE {schema}.%I', 'outcomes_' || (t.turn + 1) % 2);
  UPDATE {schema}.outcome_turn o SET turn = o.turn + 1, since = now WHERE o.singleton;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false; -- somebody reads it: next time
END $$;

-- Called for an outcome that is found under a key whose command is about to be carried out.
CREATE FUNCTION {schema}.refuse_known_key() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'daybook: an outcome is stored under this key' USING ERRCODE = 'DB005';
END $$;

-- Several snapshots of a stream. Programs of version 2 and before keep theirs in the table snapshots.
CREATE TABLE {schema}.stream_snapshots (
  stream_id    text COLLATE "C" NOT NULL,
  fingerprint  text COLLATE "C" NOT NULL,
  version      bigint NOT NULL,
  position     bigint NOT NULL,
  content_type text COLLATE "C" NOT NULL,
  data         bytea  NOT NULL,
  taken_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (stream_id, fingerprint, version)
);
INSERT INTO {schema}.stream_snapshots (stream_id, fingerprint, version, position, content_type, data, taken_at)
SELECT s.stream_id, s.fingerprint, s.version, s.position, s.content_type, s.data, s.taken_at FROM {schema}.snapshots s;

-- Commands that are carried out later, for whoever asks how they are doing. The id is that of the command.
CREATE TABLE {schema}.operations (
  id           uuid PRIMARY KEY,
  scope        text COLLATE "C" NOT NULL DEFAULT '',
  type         text COLLATE "C" NOT NULL,
  request      bytea NOT NULL DEFAULT '',                    -- HMAC-SHA-256 of what is asked; empty when nobody enqueued it by a queue
  state        text NOT NULL DEFAULT 'accepted' CHECK (state IN ('accepted', 'running', 'done', 'refused', 'expired', 'failed')),
  progress     real NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 1),
  note         text NOT NULL DEFAULT '',
  code         text NOT NULL DEFAULT '',                     -- of a refusal
  reason       text NOT NULL DEFAULT '',
  content_type text NOT NULL DEFAULT '',
  result       bytea NOT NULL DEFAULT '',
  stream       text COLLATE "C" NOT NULL DEFAULT '',
  version      bigint NOT NULL DEFAULT 0,
  token        text NOT NULL DEFAULT '',
  revision     bigint NOT NULL DEFAULT 1,                    -- rises with each change
  accepted_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at   timestamptz,
  changed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  finished_at  timestamptz,
  deadline     timestamptz
) WITH (fillfactor = 70);
CREATE INDEX operations_finished ON {schema}.operations (finished_at) WHERE finished_at IS NOT NULL;

-- As before, and: where no relay has ever run, commands may go that the dispatcher has passed, up to the first message that
-- waits for a relay. The lock keeps the first relay from beginning below what goes meanwhile.
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
  passed := (SELECT min(g.floor) FROM {schema}.segments g WHERE g.consumer = 'outbox-relay' AND g.version = 1);
  IF passed IS NULL THEN
    passed := coalesce((SELECT min(g.floor) FROM {schema}.segments g JOIN {schema}.consumers c ON c.consumer = g.consumer AND c.version = g.version
                         WHERE g.consumer = 'commands' AND g.version = 1 AND c.kind = 'dispatcher'), 0);
    IF passed <= cleaned THEN RETURN cleaned; END IF;
    held := (SELECT o.first_position FROM {schema}.outbox o
              WHERE o.first_position > cleaned AND o.first_position <= passed AND o.topic <> 'commands'
              ORDER BY o.first_position LIMIT 1);
    passed := least(passed, held - 1);
  END IF;
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

REVOKE EXECUTE ON FUNCTION {schema}.turn_outcomes(interval, timestamptz), {schema}.refuse_known_key() FROM PUBLIC;
