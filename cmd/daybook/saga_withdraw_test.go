package main

import (
	"testing"

	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/saga"
)

// A newer version was installed and does not come back: the program that lacks it takes the events again when somebody says so.
func TestAVersionIsWithdrawn(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	d.dispatch()
	if err := saga.Install(t.Context(), d.pool, deliveriesOf(2)); err != nil {
		t.Fatal(err)
	}
	d.manage()
	d.append("1", parcelOrdered{})
	d.wantError(1, "--reason is missing", "withdraw", "delivery", "--newest", "1")
	d.wantError(1, "--newest is missing", "withdraw", "delivery", "--reason", "x")
	d.wantError(exitRefused, "the newest version of \"delivery\" is 2", "withdraw", "delivery", "--newest", "2", "--reason", "x")
	d.wantError(exitRefused, "no saga \"none\" is installed", "withdraw", "none", "--newest", "1", "--reason", "x")
	if _, err := saga.Explain(t.Context(), d.pool, "delivery", "1"); err == nil {
		t.Error("a program without the newest version has begun an instance")
	}
	wantIn(t, d.run("withdraw", "delivery", "--newest", "1", "--reason", "2 was rolled back", "--actor", "ann"), "version 1 is the newest of delivery: ")
	livetest.Exec(t, d.pool, "UPDATE daybook.saga_names SET newest_since = newest_since - interval '1 minute'") // what programs that have it would need to say so
	d.until("1", "it completes", over)
}
