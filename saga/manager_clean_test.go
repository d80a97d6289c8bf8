package saga

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/internal/flow"
)

// What has ended goes after a while, with all that belongs to it; it cannot begin again by an event that comes again, and the
// next run of a key has another number, and so other ids of commands.
func TestEndedInstancesAreRemoved(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1), again{})
	clock := &steppedClock{at: noon}
	cfg := quick()
	cfg.Clock, cfg.KeepEnded = clock.now, time.Hour
	stop := w.start(w.manager(cfg, script(1), again{}))
	const n = 20
	for i := range n {
		w.open(fmt.Sprint("k", i), "send one", "complete")
	}
	w.open("live", "send one")
	w.sees("live", 1, "opened")
	w.becomes("the ends", fmt.Sprint(n), "SELECT count(*)::text FROM daybook.sagas WHERE ended_at IS NOT NULL")
	w.becomes("the reactor's", fmt.Sprint(n+1), "SELECT count(*)::text FROM daybook.saga_commands WHERE saga = 'again'")
	// The ends of all but one are known: that one stays, for the dispatcher to carry it out when it comes back.
	ids := strings.Fields(w.value("SELECT string_agg(command::text, ' ' ORDER BY position) FROM daybook.saga_commands WHERE saga = 'again'"))
	for _, id := range ids[1:] {
		w.post.reply(uuid.MustParse(id), flow.ReplyDone)
	}
	w.becomes("what has no end", "1", "SELECT count(*)::text FROM daybook.saga_commands WHERE saga = 'again' AND state = 'sent'")
	stop()
	clock.step(noon.Add(30 * time.Minute))
	w.start(w.manager(cfg, script(1), again{}))() // too soon
	if left := w.number("SELECT count(*) FROM daybook.sagas"); left != n+1 {
		t.Fatalf("%d instances are left", left)
	}
	clock.step(noon.Add(61 * time.Minute))
	stop = w.start(w.manager(cfg, script(1), again{}))
	w.becomes("what is left", "1", "SELECT count(*)::text FROM daybook.sagas")
	w.becomes("what is left", ids[0], "SELECT string_agg(command::text, ' ') FROM daybook.saga_commands WHERE saga = 'again'")
	for _, table := range []string{"saga_history", "saga_commands"} {
		if got := w.value("SELECT string_agg(DISTINCT key, ', ') FROM daybook." + table + " WHERE saga = 'script'"); got != "live" {
			t.Errorf("%s has rows of %s", table, got)
		}
	}
	stop()
	before := w.number("SELECT count(*) FROM sent")
	w.exec("UPDATE daybook.segments SET floor = 0; DELETE FROM daybook.checkpoints")
	w.start(w.manager(cfg, script(1), again{}))
	w.open("k1", "send one")
	w.sees("k1", 2, "opened")
	w.becomes("what was sent", fmt.Sprint(before+2), "SELECT count(*)::text FROM sent")
	if got := w.number("SELECT count(*) FROM daybook.sagas"); got != 2 {
		t.Errorf("there are %d instances", got)
	}
	if got := w.number("SELECT count(DISTINCT id) FROM sent"); got != before+2 {
		t.Errorf("of %d commands %d have ids of their own", before+2, got)
	}
}
