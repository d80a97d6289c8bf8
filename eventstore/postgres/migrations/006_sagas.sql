-- Sagas: instances and their history, the commands that they sent, and what operators decide.
--
-- Serves programs from version 4 on.

-- One row for each run of an instance: at most one of a key is under way.
CREATE TABLE {schema}.sagas (
  saga           text COLLATE "C" NOT NULL,
  key            text COLLATE "C" NOT NULL,
  run            int    NOT NULL,
  version        int    NOT NULL,                            -- of the definition that it began with, and keeps
  kind           text   NOT NULL,                            -- 'process', 'flow', 'after'
  state          text   NOT NULL,                            -- 'running', 'compensating', 'completed', 'compensated'
  stuck          text   NOT NULL DEFAULT '',                 -- the reason; '': it goes on by itself
  stuck_step     text   NOT NULL DEFAULT '',
  stuck_text     text   NOT NULL DEFAULT '',
  stuck_since    timestamptz,
  paused_at      timestamptz,                                -- what comes in meanwhile is in saga_inputs
  paused_by      text   NOT NULL DEFAULT '',
  paused_why     text   NOT NULL DEFAULT '',
  awaits         text   NOT NULL DEFAULT '',                 -- for people
  progress       bytea  NOT NULL,                            -- JSON: the steps
  content_type   text   NOT NULL,
  data           bytea  NOT NULL,                            -- the user's state
  started_by     uuid   NOT NULL,                            -- the event
  tenant         text   NOT NULL DEFAULT '',
  correlation_id text   NOT NULL DEFAULT '',
  entries        bigint NOT NULL DEFAULT 0,                  -- how many lines of history there are
  held           int    NOT NULL DEFAULT 0,                  -- how many rows it has in saga_inputs
  began          bigint NOT NULL DEFAULT 0,                  -- the position of the event that began it
  position       bigint NOT NULL DEFAULT 0,                  -- the highest of the events that it has seen
  reopened       boolean NOT NULL DEFAULT false,             -- it had ended, and a late answer made it compensate; another run may be under way
  revision       bigint NOT NULL DEFAULT 1,
  started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  changed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at       timestamptz,
  waits_since    timestamptz,                                -- since when it waits for an answer that no timer bounds
  retries_since  timestamptz,                                -- since when something of it waits to be tried again
  PRIMARY KEY (saga, key, run)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE UNIQUE INDEX sagas_live ON {schema}.sagas (saga, key) WHERE ended_at IS NULL AND NOT reopened;
CREATE INDEX sagas_stuck ON {schema}.sagas (saga, stuck_since, key, run) WHERE stuck <> '';
CREATE INDEX sagas_paused ON {schema}.sagas (saga, paused_at, key, run) WHERE paused_at IS NOT NULL;
CREATE INDEX sagas_open ON {schema}.sagas (saga, state, changed_at, key, run) WHERE ended_at IS NULL;
CREATE INDEX sagas_ended ON {schema}.sagas (saga, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX sagas_waiting ON {schema}.sagas (saga, waits_since, key, run) WHERE waits_since IS NOT NULL;
CREATE INDEX sagas_retrying ON {schema}.sagas (saga, retries_since, key, run) WHERE retries_since IS NOT NULL;
CREATE INDEX sagas_held ON {schema}.sagas (saga, held) WHERE held > 0 AND paused_at IS NULL;

-- What is known of a saga as a whole. Instances that have ended are removed after a while: no event up to `cleaned` begins one
-- or brings about a command, should it come again, and no run up to `runs` is begun, so that ids of commands are never used twice.
CREATE TABLE {schema}.saga_names (
  saga    text COLLATE "C" PRIMARY KEY,
  cleaned bigint NOT NULL DEFAULT 0,
  runs    int    NOT NULL DEFAULT 0,
  types   text[] NOT NULL DEFAULT '{}',                      -- of events that any version has read: what comes for a version that is missing is kept
  newest  int    NOT NULL DEFAULT 0,                         -- the highest version that was installed or ran: programs that lack it leave the events to others
  newest_since timestamptz,
  newest_by    text NOT NULL DEFAULT '',                     -- who took a higher one back, and why; '': a program raised it
  newest_why   text NOT NULL DEFAULT ''
);

-- The timeline of an instance. Rows are removed with it. There are no foreign keys: managers alone write here, and looking up
-- the instance for each line would cost more than the line.
CREATE TABLE {schema}.saga_history (
  saga     text COLLATE "C" NOT NULL,
  key      text COLLATE "C" NOT NULL,
  run      int    NOT NULL,
  entry    bigint NOT NULL,
  at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  kind     text   NOT NULL,
  step     text   NOT NULL DEFAULT '',
  text     text   NOT NULL DEFAULT '',
  event    uuid,
  position bigint NOT NULL DEFAULT 0,
  actor    text   NOT NULL DEFAULT '',
  reason   text   NOT NULL DEFAULT '',
  PRIMARY KEY (saga, key, run, entry)
);

-- What sagas have sent. A retry sends the stored bytes again. Dispatchers ask here before they carry out a command: one that
-- is closed is not carried out. Reactors keep theirs here too, with the event's id as the key, run 0 and without an instance.
CREATE TABLE {schema}.saga_commands (
  command      uuid PRIMARY KEY,
  saga         text COLLATE "C" NOT NULL,
  key          text COLLATE "C" NOT NULL,
  run          int    NOT NULL,
  step         text   NOT NULL,
  direction    text   NOT NULL,                              -- 'do', 'undo', 'end'
  intent       int    NOT NULL,
  undoes       uuid,                                         -- of an undo
  type         text   NOT NULL,
  target       text   NOT NULL DEFAULT '',
  content_type text   NOT NULL,
  data         bytea  NOT NULL,
  state        text   NOT NULL DEFAULT 'sent',               -- 'sent', then as the reply says: 'done', 'refused', 'expired', 'failed'
  code         text   NOT NULL DEFAULT '',
  reason       text   NOT NULL DEFAULT '',
  closed       boolean NOT NULL DEFAULT false,               -- its step is over: it must not be carried out any more
  position     bigint NOT NULL DEFAULT 0,                    -- of a reactor's: of the event that brought it about
  sent_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  resent_at    timestamptz,
  replied_at   timestamptz
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX saga_commands_of ON {schema}.saga_commands (saga, key, run, sent_at);
CREATE INDEX saga_commands_alone ON {schema}.saga_commands (saga, sent_at) WHERE run = 0;

-- What came for an instance that could not take it: because it is paused, or because no program has the version of its definition.
CREATE TABLE {schema}.saga_inputs (
  saga       text COLLATE "C" NOT NULL,
  key        text COLLATE "C" NOT NULL,
  run        int    NOT NULL,
  input      bigint GENERATED ALWAYS AS IDENTITY,            -- in order
  kind       text   NOT NULL,                                -- 'event', 'reply', 'timer'
  body       bytea  NOT NULL,                                -- msgpack
  arrived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (saga, key, run, input)
);

-- What operators decide: a frozen plan that managers carry out, item by item, and that says who and why.
CREATE TABLE {schema}.saga_plans (
  plan       uuid PRIMARY KEY,
  saga       text COLLATE "C" NOT NULL,
  action     text   NOT NULL,                                -- 'retry', 'answer', 'cancel', 'mark', 'skip', 'pause', 'resume'
  step       text   NOT NULL DEFAULT '',
  arguments  bytea  NOT NULL DEFAULT '',                     -- JSON
  actor      text   NOT NULL,
  reason     text   NOT NULL,
  selection  text   NOT NULL,                                -- what was asked for, as people read it
  state      text   NOT NULL DEFAULT 'running',              -- 'running', 'done', 'cancelled'
  items      int    NOT NULL,
  done       int    NOT NULL DEFAULT 0,
  refused    int    NOT NULL DEFAULT 0,
  rate       double precision NOT NULL DEFAULT 0,            -- items a second; 0: no limit
  next_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at   timestamptz,
  ended_by   text   NOT NULL DEFAULT '',                     -- who cancelled it, and why
  ended_why  text   NOT NULL DEFAULT ''
);
CREATE INDEX saga_plans_running ON {schema}.saga_plans (saga, created_at) WHERE state = 'running';
CREATE INDEX saga_plans_created ON {schema}.saga_plans (created_at);

CREATE TABLE {schema}.saga_plan_items (
  plan    uuid NOT NULL REFERENCES {schema}.saga_plans ON DELETE CASCADE,
  item    int  NOT NULL,
  key     text COLLATE "C" NOT NULL,
  run     int  NOT NULL,
  state   text NOT NULL DEFAULT 'open',                      -- 'open', 'done', 'refused'
  result  text NOT NULL DEFAULT '',                          -- why it was refused
  done_at timestamptz,
  PRIMARY KEY (plan, item)
);
CREATE INDEX saga_plan_items_open ON {schema}.saga_plan_items (plan, item) WHERE state = 'open';
-- What was decided for an instance.
CREATE INDEX saga_plan_items_key ON {schema}.saga_plan_items (key, run);

-- Whether a transaction is under way that had registered to write (see register_position) when p_drawn was the last position
-- drawn, or before. What was recorded until then may not be there yet, or lie behind the safe head. Timers must not overtake it.
CREATE FUNCTION {schema}.writing_since(p_drawn bigint) RETURNS boolean LANGUAGE sql AS $$
  SELECT EXISTS (SELECT FROM pg_locks l
   WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = '{schema}.log_position'::regclass::oid
     AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
     AND ((p_drawn - l.objid::bigint + 16777216) & 2147483647) >= 16777216)
$$;
