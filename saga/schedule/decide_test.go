package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// After an outage of five slots of a job of every minute: what begins, what is missed, and what comes next.
func TestDecide(t *testing.T) {
	t.Parallel()
	c := calendarOf(t, "* * * * *", "UTC")
	for _, test := range []struct {
		missed  Missed
		overlap Overlap
		tooLate time.Duration
		now     time.Duration // after slot 0
		open    bool
		want    string
	}{
		{Once, Forbid, 0, -time.Second, false, "next 0 again 0"},
		{Once, Forbid, 0, 0, false, "run 0 next 1 again 1"},
		{Once, Forbid, 0, 4*time.Minute + 30*time.Second, false, "missed 0 1 2 3 run 4 next 5 again 5"},
		{Once, Forbid, time.Minute, 4*time.Minute + 30*time.Second, false, "missed 0 1 2 3 run 4 next 5 again 5"},
		{Once, Forbid, 20 * time.Second, 4*time.Minute + 30*time.Second, false, "missed 0 1 2 3 4 next 5 again 5"},
		{Skip, Forbid, 0, 4*time.Minute + 30*time.Second, false, "missed 0 1 2 3 run 4 next 5 again 5"},
		{Skip, Forbid, 10 * time.Second, 4*time.Minute + 30*time.Second, false, "missed 0 1 2 3 4 next 5 again 5"},
		{Skip, Forbid, 10 * time.Second, 5*time.Minute + 5*time.Second, false, "missed 0 1 2 3 4 run 5 next 6 again 6"},
		{All, Forbid, 0, 4*time.Minute + 30*time.Second, false, "run 0 next 1 again 1"},
		{All, Allow, 0, 4*time.Minute + 30*time.Second, false, "run 0 1 2 3 4 next 5 again 5"},
		{All, Allow, 150 * time.Second, 4*time.Minute + 30*time.Second, false, "missed 0 1 run 2 3 4 next 5 again 5"},
		{All, Forbid, 150 * time.Second, 4*time.Minute + 30*time.Second, false, "missed 0 1 run 2 next 3 again 3"},
		{Once, Forbid, 0, 4*time.Minute + 30*time.Second, true, "next 0 again 4m31s"},
		{Once, Allow, 0, 4*time.Minute + 30*time.Second, true, "missed 0 1 2 3 run 4 next 5 again 5"},
		{Once, Replace, 0, 4*time.Minute + 30*time.Second, true, "missed 0 1 2 3 run 4 replace next 5 again 5"},
		{Once, Replace, 0, 4*time.Minute + 30*time.Second, false, "missed 0 1 2 3 run 4 next 5 again 5"},
		{Once, Replace, time.Second, 4*time.Minute + 30*time.Second, true, "missed 0 1 2 3 4 next 5 again 5"},
		{Once, Allow, 0, 20000 * time.Minute, false, "missed 1000 next 1000 again 1000"},
		{All, Allow, 0, 20000 * time.Minute, false, "run 100 next 100 again 100"},
	} {
		r := row{missed: test.missed, overlap: test.overlap, tooLate: test.tooLate, next: second0}
		d, err := r.decide(c, second0.Add(test.now), test.open)
		if err != nil {
			t.Fatal(err)
		}
		minutes := func(t time.Time) string {
			after := t.Sub(second0)
			if after%time.Minute != 0 {
				return after.String()
			}
			return fmt.Sprint(int(after / time.Minute))
		}
		var text []string
		list := func(word string, slots []time.Time) {
			if len(slots) == 0 {
				return
			}
			text = append(text, word)
			if len(slots) > 10 {
				text = append(text, fmt.Sprint(len(slots)))
				return
			}
			for _, slot := range slots {
				text = append(text, minutes(slot))
			}
		}
		var missed []time.Time
		for _, m := range d.missed {
			missed = append(missed, m.slot)
			if m.why == "" {
				t.Error("missed without a reason")
			}
		}
		list("missed", missed)
		list("run", d.start)
		if d.replace {
			text = append(text, "replace")
		}
		text = append(text, "next", minutes(d.next), "again", minutes(d.again))
		if got := strings.Join(text, " "); got != test.want {
			t.Errorf("%s, %s, too late %v, at %v, open %v:\n got %s\nwant %s", test.missed, test.overlap, test.tooLate, test.now, test.open, got, test.want)
		}
	}
}

func TestJobsThatAreRefused(t *testing.T) {
	t.Parallel()
	run := (&calls{}).run
	for want, j := range map[string]Job{
		`job "report": field Zone: "Europe/Berlyn": is not known: use a name of the IANA database`: {Name: "report", Cron: "0 2 * * *", Zone: "Europe/Berlyn", Run: run},
		`Zone: "Local": is another on each machine: name one`:                                      {Name: "report", Cron: "0 2 * * *", Zone: "Local", Run: run},
		`Cron: "0 25 * * *": has "25" for the hour, which has "25": write a number from 0 to 23`:   {Name: "report", Cron: "0 25 * * *", Run: run},
		`Cron: "0 2 * *": has 4 fields: write minute, hour`:                                        {Name: "report", Cron: "0 2 * *", Run: run},
		`Cron: "0 2 30 2 *": never comes: write a day that exists`:                                 {Name: "report", Cron: "0 2 30 2 *", Run: run},
		`Name: is not a name`:                        {Name: "nightly/report", Cron: "0 2 * * *", Run: run},
		`Missed: "twice": is not known`:              {Name: "report", Cron: "0 2 * * *", Missed: "twice", Run: run},
		`Overlap: "sometimes": is not known`:         {Name: "report", Cron: "0 2 * * *", Overlap: "sometimes", Run: run},
		`Overlap: "replace": contradicts Missed`:     {Name: "report", Cron: "0 2 * * *", Overlap: Replace, Missed: All, Run: run},
		`TooLate: -1s: must not be negative`:         {Name: "report", Cron: "0 2 * * *", TooLate: -time.Second, Run: run},
		`Timeout: -1s: must be above 0`:              {Name: "report", Cron: "0 2 * * *", Timeout: -time.Second, Run: run},
		`Workers: -1: must be between 1 and 1000`:    {Name: "report", Cron: "0 2 * * *", Workers: -1, Run: run},
		`Attempts: -1`:                               {Name: "report", Cron: "0 2 * * *", Attempts: -1, Run: run},
		`Run: is nil: say what the job does`:         {Name: "report", Cron: "0 2 * * *"},
		`Config.Poll: 1m0s: must be at most half of`: {Name: "report", Cron: "0 2 * * *", Run: run},
		`pool is nil: pass the pool`:                 {Name: "report", Cron: "0 2 * * *", Run: run},
		`job "report": Name: is that of another job`: {Name: "report", Cron: "0 2 * * *", Run: run},
	} {
		jobs := []Job{j}
		if strings.Contains(want, "another job") {
			jobs = append(jobs, j)
		}
		if _, err := NewRunner(nil, Config{Poll: time.Minute}, jobs...); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "Policy.Attempts", "Attempts"), want) {
			t.Errorf("want %s\n got %v", want, err)
		}
	}
}
