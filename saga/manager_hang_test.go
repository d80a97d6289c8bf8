package saga

import (
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
)

// A reaction that does not return holds up neither other instances nor replies; Health says that it still runs, and once it can
// return, the event has its effect once.
func TestAHungReactionHoldsUpNothing(t *testing.T) {
	t.Parallel()
	d := script(1)
	d.hangs = make(chan struct{})
	w := newScriptWorld(t, d)
	cfg := quick()
	cfg.Timeout, cfg.RetryBase, cfg.RetryCap = 100*time.Millisecond, 200*time.Millisecond, time.Second
	cfg.Attempts = 100
	m := w.manager(cfg, d)
	w.open("before", "send one")
	w.open("x", "hang")
	w.open("after", "send one")
	stop := w.start(m)
	w.sees("after", 1, "opened")
	livetest.Eventually(t, "Health tells of it", func() bool {
		h := m.Health(t.Context())
		return h.Ready && strings.Contains(h.Reason, "saga script events: ") && strings.Contains(h.Reason, "ignore") && strings.Contains(h.Reason, "still run")
	}, func() string { return m.Health(t.Context()).Reason })
	w.post.reply(idOf("script", "after", 1, "one", 1), flow.ReplyDone)
	w.sees("after", 1, "opened; reply one done")
	close(d.hangs)
	w.sees("x", 1, "opened")
	livetest.Eventually(t, "Health is well again", func() bool {
		h := m.Health(t.Context())
		return h.Ready && h.Reason == ""
	}, func() string { return m.Health(t.Context()).Reason })
	stop()
}

// What operators decide is bounded as well: a definition that does not return is told of.
func TestAHungDecisionIsToldOf(t *testing.T) {
	t.Parallel()
	d := script(1)
	d.hangs = make(chan struct{})
	w := newScriptWorld(t, d)
	cfg := quick()
	cfg.Timeout = 100 * time.Millisecond
	m := w.manager(cfg, d)
	w.open("x", "send one")
	w.start(m)
	w.sees("x", 1, "opened")
	id := w.plan(flow.ActionRetry, "hang", "", "x")
	livetest.Eventually(t, "Health tells of it", func() bool {
		h := m.Health(t.Context())
		return !h.Ready && strings.Contains(h.Reason, "saga script manager hung: a definition ignores the end of its context")
	}, func() string { return m.Health(t.Context()).Reason })
	close(d.hangs)
	if got := w.planEnds(id); !strings.HasPrefix(got, "1 done") {
		t.Errorf("the plan: %s", got)
	}
	w.sees("x", 1, "opened; action retry hang")
	livetest.Eventually(t, "Health is well again", func() bool { return m.Health(t.Context()).Ready })
}
