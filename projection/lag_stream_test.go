package projection

import (
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox"
)

// What is not on the topic that a projection follows does not make it late; what is there does.
func TestStreamLagIsThatOfTheTopic(t *testing.T) {
	t.Parallel()
	some, all := gone("of_some"), gone("of_all")
	w := newStreamWorld(t, some, all)
	stopRelay := w.run(w.relay(w.channel, outbox.Config{}))
	s := w.subscription(w.channel, outbox.SubscriptionConfig{Topic: topicSome})
	both := w.subscription(w.channel, outbox.SubscriptionConfig{})
	runners := []*Runner{w.reader(s, Config{}, some), w.reader(both, Config{}, all)}
	lag := func(i int) Lag {
		t.Helper()
		l, err := runners[i].Lag(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l[0]
	}
	at := func(token eventstore.Token) eventstore.Position { return token.Marks()[0].Position }
	stopSome, stopAll := w.run(runners[0]), w.run(runners[1])
	w.wait(w.append("s", removed{1}), some, all)
	w.passed(some.Name) // in all partitions: what is late is counted from there
	w.passed(all.Name)
	stopSome()
	stopAll()
	stopRelay()
	if of := ask[string](w.world, "SELECT source FROM daybook.consumers WHERE consumer = 'of_some'"); of != "topic "+topicSome {
		t.Fatalf("the source is %q", of)
	}

	last := at(w.append("s", added{1}, added{2}))
	if l := lag(0); l.Behind != 0 || l.Age != 0 || l.Head != l.Applied {
		t.Errorf("events that are not on the topic make it late: %+v", l)
	}
	if l := lag(1); l.Behind != 2 || l.Age <= 0 || l.Head != last {
		t.Errorf("whoever follows all of the log is %+v", l)
	}
	last = at(w.append("s", removed{1}, removed{2}, removed{3}))
	w.append("s", added{1})
	w.exec("UPDATE daybook.outbox SET recorded_at = recorded_at - interval '1 hour' WHERE topic = $1 AND last_position = $2", topicSome, last.Ordinal())
	if l := lag(0); l.Head != last || l.Behind != last.Ordinal()-l.Applied.Ordinal() || l.Age < time.Hour {
		t.Errorf("%+v, with the last message at %s", l, last)
	}
	// A row may be open at the floor.
	w.exec("UPDATE daybook.segments SET floor = $1 WHERE consumer = 'of_some'", last.Ordinal()-1)
	if l := lag(0); l.Head != last || l.Behind != 1 || l.Age < time.Hour {
		t.Errorf("in the midst of a row: %+v", l)
	}
	w.exec("UPDATE daybook.segments SET floor = $1 WHERE consumer = 'of_some'", last.Ordinal())
	if l := lag(0); l.Head != last || l.Behind != 0 || l.Age != 0 {
		t.Errorf("behind all of them: %+v", l)
	}
	st, err := w.store.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range st.Consumers {
		if late := !c.Oldest.IsZero(); (c.Consumer == "of_some") == late && c.Kind == "projection" {
			t.Errorf("the status is %+v", c)
		}
	}
	w.exec("UPDATE daybook.segments SET floor = $1 WHERE consumer = 'of_some'", last.Ordinal()-1)
	if st, err = w.store.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range st.Consumers {
		if c.Consumer == "of_some" && time.Since(c.Oldest) < time.Hour {
			t.Errorf("the status is %+v", c)
		}
	}
}

// The statement of a topic is planned with its values, like that of the log.
func TestStreamLagHasNoScan(t *testing.T) {
	t.Parallel()
	v := gone("planned_some")
	w := newStreamWorld(t, v)
	w.exec("UPDATE daybook.consumers SET source = 'topic ' || $1::text WHERE consumer = $2", topicSome, v.Name)
	for range 20 {
		events := make([]any, 200)
		for i := range events {
			events[i] = added{1}
		}
		w.append("s", events...)
	}
	w.exec(`INSERT INTO daybook.outbox (first_position, last_position, partition, topic, key, id, type, content_type, headers, data)
		SELECT p, p, 0, CASE WHEN p % 2 = 0 THEN $1 ELSE $2 END, 'k', gen_random_uuid(), 'test', 'text/plain', '', ''
		  FROM (SELECT nextval('daybook.log_position') AS p FROM generate_series(1, 20000)) x`, topicSome, topicAll)
	for _, analysed := range []bool{false, true} {
		if analysed {
			w.exec("VACUUM ANALYZE")
		}
		w.exec("UPDATE daybook.segments SET floor = 23990 WHERE consumer = $1", v.Name)
		explain(t, w.world, "lag", inStore(lagSQL, "daybook"), "SET LOCAL plan_cache_mode = force_custom_plan", "'planned_some', 1",
			[]string{"store", "consumers", "segments", "checkpoints", "parked"})
	}
}
