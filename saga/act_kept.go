package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// keptFails reports whether the instance is stuck because it cannot take what was kept for it. The first of that is what fails.
func (in *instance) keptFails() bool { return keptFails(in.facts.Stuck) }

func keptFails(s flow.Stuck) bool {
	return s.Reason == flow.DeadLetter && strings.HasPrefix(s.Text, keptFailed)
}

// unfail forgets that it cannot take what was kept for it: it is stuck for what it was before, as its progress has it.
func (t *turn) unfail(in *instance) {
	in.state.Stuck = flow.Stuck{}
	(&recorder{i: in.state, now: instant(t.now)}).settle()
}

// keepStanding adds a timer that was given up to the progress, if that is in the row only; see [recorder.standing].
func keepStanding(stored []byte, stuck flow.Stuck) []byte {
	found := standingForm.FindStringSubmatch(stuck.Text)
	if stuck.Reason != flow.DeadLetter || stuck.Step != "" || found == nil {
		return stored
	}
	var p progress
	if json.Unmarshal(stored, &p) != nil { // the definition cannot read it either
		return stored
	}
	if p.Extra == nil {
		p.Extra = map[string]string{}
	}
	p.Extra[standingExtra+found[1]] = stuck.Text
	if with, err := json.Marshal(p); err == nil {
		return with
	}
	return stored
}

// retryKept lets what was kept be tried at once.
func (k *keeper) retryKept(b *pgx.Batch, t *turn, in *instance, i *planItem) {
	delete(k.failed, in.place)
	i.kept = true
	in.history = append(in.history, flow.Entry{Kind: "action", Text: i.action + ": what was kept for it is tried again", Actor: i.actor, Reason: i.reason})
	t.change(in, 0)
	t.writeHistory(b)
	b.Queue(inSchema(notedSQL, k.u.schema), k.u.name, in.key, in.run, k.u.clock())
}

// skip passes by the input that fails, and lets the instance take what was kept behind it. It refuses a timer: that may be the
// only thing that wakes the instance again.
func (k *keeper) skip(ctx context.Context, tx pgx.Tx, b *pgx.Batch, t *turn, in *instance, i *planItem) (refused, err error) {
	first, err := k.firstKept(ctx, tx, in)
	if err != nil {
		return nil, err
	}
	if first.form.Timer != "" {
		return fmt.Errorf("what fails is timer %s, without which nothing may wake it: mend the program, or cancel", first.form.Timer), nil
	}
	if err := safely("saga: "+k.u.name, in.restore); err != nil {
		return nil, faultyReaction{err}
	}
	t.unfail(in)
	t.change(in, 0)
	in.history = append(in.history, flow.Entry{Kind: "action", Text: i.action + ": it goes on with what was kept behind", Actor: i.actor, Reason: i.reason})
	k.passKept(in, i, first)
	b.Queue(k.u.sql.taken, k.u.name, in.key, in.run, first.input, 1)
	return nil, t.write(ctx, tx, b)
}

// cancelKept passes by the input that fails when the instance has been cancelled, and drops what was kept of timers that are
// cancelled by that. A timer that is not stays the first: the instance may wait for it still.
func (k *keeper) cancelKept(ctx context.Context, tx pgx.Tx, b *pgx.Batch, t *turn, in *instance, i *planItem) error {
	u := k.u
	first, err := k.firstKept(ctx, tx, in)
	if err != nil {
		return err
	}
	last, passed := first.input-1, 0
	if timer := first.form.Timer; timer == "" || in.ended() || in.touched(timer) {
		k.passKept(in, i, first)
		last, passed = first.input, 1
	}
	delete(k.failed, in.place)
	i.kept = true
	gone, err := k.timersBehind(ctx, tx, in, last)
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		b.Queue(inSchema(dropHeldSQL, u.schema), u.name, in.key, in.run, gone)
		t.counts.timersIgnored += int64(len(gone))
	}
	b.Queue(u.sql.taken, u.name, in.key, in.run, last, passed+len(gone))
	return nil
}

// keptInput is the first input that was kept for an instance. What cannot be read has no form.
type keptInput struct {
	input int64
	form  heldForm
}

func (k *keeper) firstKept(ctx context.Context, tx pgx.Tx, in *instance) (first keptInput, err error) {
	var body []byte
	if err := tx.QueryRow(ctx, k.u.sql.inputs, k.u.name, in.key, in.run, 1).Scan(&first.input, &body); err != nil {
		return first, fmt.Errorf("saga: read what was kept for %s: %w", in.facts.Ref, err)
	}
	if eventstore.Msgpack.Unmarshal(body, &first.form) != nil {
		first.form = heldForm{}
	}
	return first, nil
}

// passKept passes by the first input that was kept, which is the one that fails. An event counts as seen: it is in the history,
// and in the log.
func (k *keeper) passKept(in *instance, i *planItem, first keptInput) {
	entry := flow.Entry{Kind: "ignored", Text: "an input", Actor: i.actor, Reason: i.reason}
	switch f := first.form; {
	case f.Event != nil:
		entry.Text = f.Event.Type
		if e, err := f.Event.event(); err == nil {
			entry.Event, entry.Position = e.ID, e.Position
			in.position = max(in.position, e.Position.Ordinal())
		}
	case f.Reply != nil:
		entry.Step, entry.Text = f.Origin.Step, "the end of command "+f.Reply.Command
	case f.Timer != "":
		entry.Text = "timer " + f.Timer
	}
	entry.Text += ", which was kept for it and could not be taken, is passed by"
	in.history = append(in.history, entry)
	delete(k.failed, in.place)
	i.kept = true
}

// notedSQL counts a line of history.
const notedSQL = `
UPDATE {schema}.sagas SET entries = entries + 1, changed_at = coalesce($4::timestamptz, clock_timestamp()), revision = revision + 1
 WHERE saga = $1 AND key = $2 AND run = $3`
