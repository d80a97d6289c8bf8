-- Schedules: jobs that recur, and each of their firings.
--
-- Serves programs from version 4 on.

-- A job, or a job of one tenant, as the program that registered it last defines it. What is due when is decided by these
-- rows, so that any program does it, also one that does not know the job; a timer of queue 'schedules' tells it when to look.
CREATE TABLE {schema}.schedules (
  job        text COLLATE "C" NOT NULL,
  tenant     text COLLATE "C" NOT NULL,                      -- '' for a job without tenants
  expression text   NOT NULL,                                -- cron, as it was written
  zone       text   NOT NULL,
  missed     text   NOT NULL,                                -- 'once', 'skip', 'all'
  overlap    text   NOT NULL,                                -- 'forbid', 'allow', 'replace'
  too_late   interval NOT NULL,                              -- 0: never
  next_slot  timestamptz NOT NULL,                           -- the first that nothing has been decided about
  last_slot  timestamptz,                                    -- the last that something has
  seen_at    timestamptz NOT NULL,                           -- when a program said last that it knows the job
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (job, tenant)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- What became of each slot. The timer that a firing waits for, or is carried out under, is of queue 'schedule:' and the job.
CREATE TABLE {schema}.schedule_firings (
  job        text COLLATE "C" NOT NULL,
  tenant     text COLLATE "C" NOT NULL,
  slot       timestamptz NOT NULL,
  state      text   NOT NULL,                                -- 'waiting', 'running', 'retrying'; 'done', 'failed', 'missed', 'replaced'
  attempt    int    NOT NULL DEFAULT 0,                      -- how often it was begun
  failures   int    NOT NULL DEFAULT 0,                      -- how many attempts failed, or ended with their process
  token      bigint NOT NULL DEFAULT 0,                      -- of the attempt that may save progress
  owner      text   NOT NULL DEFAULT '',                     -- of the last attempt
  progress   bytea  NOT NULL DEFAULT '',                     -- the job's own
  error      text   NOT NULL DEFAULT '',                     -- of the last attempt that failed, or why it was missed
  started_at timestamptz,
  ended_at   timestamptz,
  PRIMARY KEY (job, tenant, slot)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX schedule_firings_open ON {schema}.schedule_firings (job, tenant, slot) WHERE ended_at IS NULL;
CREATE INDEX schedule_firings_ended ON {schema}.schedule_firings (ended_at) WHERE ended_at IS NOT NULL;
