-- The topics on which sagas hear how their commands ended.
--
-- Serves programs from version 4 on.

-- As before, and: where no relay has ever run, the ends of a saga's commands may go like the commands themselves. Their topic
-- is named after the consumer that reads it, which is the saga's: no relay has to publish it, and who follows it holds it.
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
                AND NOT EXISTS (SELECT FROM {schema}.consumers c WHERE c.consumer = o.topic AND c.kind = 'saga')
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
