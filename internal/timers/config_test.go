package timers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/retry"
	"github.com/daybook-go/daybook/internal/timers"
)

func TestConfigNamesAllFaults(t *testing.T) {
	t.Parallel()
	handle := func(context.Context, []timers.Timer) error { return nil }
	for _, good := range []timers.Config{{Queue: "q"}, {Queue: "q", Lease: 100 * time.Millisecond}, {Queue: "q", Ahead: -1, Poll: time.Hour, Batch: 1, Group: 1, Workers: 1}} {
		if _, err := timers.NewRunner(good, handle); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	_, err := timers.NewRunner(timers.Config{
		Lease: time.Millisecond, Poll: -1, Ahead: time.Hour, Batch: -1, Group: 1 << 20, Workers: -1, Timeout: -1, Retry: retry.Policy{Base: -1},
	}, nil)
	if err == nil {
		t.Fatal("no fault")
	}
	for _, field := range []string{"Queue", "Lease", "Poll", "Ahead", "Batch", "Group", "Workers", "Timeout", "Retry"} {
		if strings.Count(err.Error(), "Config."+field+": ") != 1 {
			t.Errorf("Config.%s is not named once in:\n%v", field, err)
		}
	}
	if !strings.Contains(err.Error(), "the handler is nil") {
		t.Errorf("no word about the handler: %v", err)
	}
}

// A store without the table: the runner waits and says so. What is there later is run.
func TestRunnerWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	execute(t, pool, firedSQL)
	execute(t, pool, `ALTER TABLE daybook.timers RENAME TO gone`)
	r := run(t, pool, timers.Config{}, effects(pool, ""))
	eventually(t, "it says that it waits", func() bool { return value[bool](t, pool, `SELECT true`) && r.Status().State == timers.Waiting })
	if h := r.Health(t.Context()); h.Ready || !strings.Contains(h.Reason, "timers") || h.State != "waiting" || h.Since.IsZero() {
		t.Errorf("%+v", h)
	}
	execute(t, pool, `ALTER TABLE daybook.gone RENAME TO timers`)
	set(t, pool, nil, timers.Setting{Name: "x"})
	eventually(t, "it has fired", func() bool { return count(t, pool, "fired") == 1 })
	eventually(t, "it is ready", func() bool { return value[bool](t, pool, `SELECT true`) && r.Health(t.Context()).Ready })
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if h := r.Health(t.Context()); h.Ready || h.State != "not running" || h.Reason == "" {
		t.Errorf("at the end: %+v", h)
	}
}
