-- Timers: what is due at a time, for whoever claims it.
--
-- Serves programs from version 4 on.

-- A timer is claimed for as long as its lease lasts, under a token that rises with each claim, and with everything else that
-- takes the timer from who has claimed it. Who finishes it must know the token. While it is claimed, due_at stays what it
-- was; visible_at is when the next claim may find it: the due time, the end of the pause before it is tried again, or the
-- end of the lease.
CREATE TABLE {schema}.timers (
  queue      text COLLATE "C" NOT NULL,                      -- whose they are: a saga, the schedules
  name       text COLLATE "C" NOT NULL,
  id         bigint GENERATED ALWAYS AS IDENTITY,            -- of the row: tokens begin anew when a name is set after its timer is gone
  due_at     timestamptz NOT NULL,
  visible_at timestamptz NOT NULL,
  token      bigint NOT NULL DEFAULT 0,
  owner      text   NOT NULL DEFAULT '',                     -- who has claimed it; '': nobody
  attempts   int    NOT NULL DEFAULT 0,                      -- how many have failed
  does       text   NOT NULL DEFAULT '',                     -- for people
  error      text   NOT NULL DEFAULT '',                     -- of the last attempt
  payload    bytea  NOT NULL DEFAULT '',
  set_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (queue, name)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- With the id, so that a claim can go on behind the last one among timers that are due at one moment. Expressions, so that
-- only what asks for the same ones uses this index: while the planner believes that a queue is small, or the table empty, it
-- would look timers up by name in it, through all that are there.
CREATE INDEX timers_visible ON {schema}.timers ((queue || ''), visible_at, (id + 0));
-- Those that have failed: few, and looked for among very many that have not.
CREATE INDEX timers_failed ON {schema}.timers (queue, visible_at, name) WHERE attempts > 0;

-- Deletes timers, each where its token still holds, or fails as a whole: the transaction has the effects of timers that are
-- somebody else's now, or nobody's.
CREATE FUNCTION {schema}.finish_timers(p_queues text[], p_names text[], p_ids bigint[], p_tokens bigint[])
  RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
  gone bigint;
BEGIN
  DELETE FROM {schema}.timers t
   USING unnest(p_queues, p_names, p_ids, p_tokens) AS f(queue, name, id, token)
   WHERE t.queue = f.queue AND t.name = f.name AND t.id = f.id AND t.token = f.token;
  GET DIAGNOSTICS gone = ROW_COUNT;
  IF gone <> cardinality(p_names) THEN
    RAISE EXCEPTION 'daybook: % of % timers were taken over, set anew or cancelled', cardinality(p_names) - gone, cardinality(p_names) USING ERRCODE = 'DB007';
  END IF;
END $$;
