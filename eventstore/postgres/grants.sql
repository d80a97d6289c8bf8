-- What a program needs at run time. It may append and read events, never change them, and has no DDL rights: new
-- ranges are added by ensure_ranges, and messages that all have passed removed by drop_cleaned, which run with the rights
-- of their owner.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT USAGE, SELECT ON SEQUENCE {schema}.log_position TO {role};
GRANT SELECT ON {schema}.store, {schema}.migrations, {schema}.ranges, {schema}.epochs, {schema}.outbox_topics, {schema}.outcome_turn TO {role};
GRANT SELECT, INSERT ON {schema}.events, {schema}.outbox, {schema}.outcomes TO {role};
GRANT SELECT, INSERT, UPDATE ON {schema}.streams TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.consumers, {schema}.segments, {schema}.checkpoints, {schema}.outbox_tails,
  {schema}.subscribers, {schema}.snapshots, {schema}.stream_snapshots, {schema}.operations, {schema}.members, {schema}.parked,
  {schema}.letters, {schema}.held, {schema}.redrives, {schema}.redrive_items, {schema}.inbox_versions, {schema}.timers,
  {schema}.sagas, {schema}.saga_names, {schema}.saga_history, {schema}.saga_commands, {schema}.saga_inputs, {schema}.saga_plans,
  {schema}.schedules, {schema}.schedule_firings,
  {schema}.saga_plan_items TO {role};
GRANT SELECT, INSERT ON {schema}.letter_actions TO {role};
REVOKE EXECUTE ON PROCEDURE {schema}.add_range(bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION {schema}.ensure_ranges(int), {schema}.partition_of(text, int),
  {schema}.commit_batch(text, int, int, bigint, bigint, bigint, bigint, text[], int[], bigint[], bigint[], boolean),
  {schema}.declare_lost(interval, timestamptz), {schema}.raise_cleaned(interval, timestamptz), {schema}.drop_cleaned(int),
  {schema}.turn_outcomes(interval, timestamptz), {schema}.refuse_known_key() TO {role};
