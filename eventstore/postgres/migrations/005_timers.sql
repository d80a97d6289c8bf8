-- Timers: what is due at a time, for whoever claims it.
--
-- Serves programs from version 4 on.

-- A timer is claimed for as long as its lease lasts, under a token that rises with each claim and each time it is set anew.
-- Who finishes it must know the token. While it is claimed, due_at stays what it was; `visible_at` is when the next claim may
-- find it: the due time, or the end of the lease.
CREATE TABLE {schema}.timers (
  queue      text COLLATE "C" NOT NULL,                      -- whose they are: a saga, the schedules
  name       text COLLATE "C" NOT NULL,
  due_at     timestamptz NOT NULL,
  visible_at timestamptz NOT NULL,
  token      bigint NOT NULL DEFAULT 0,
  owner      text   NOT NULL DEFAULT '',
  attempts   int    NOT NULL DEFAULT 0,
  does       text   NOT NULL DEFAULT '',                     -- for people
  error      text   NOT NULL DEFAULT '',                     -- of the last attempt
  payload    bytea  NOT NULL DEFAULT '',
  set_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (queue, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX timers_visible ON {schema}.timers (queue, visible_at);
