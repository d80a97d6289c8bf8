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

// skip passes by the input that fails, and lets the instance take what was kept behind it.
func (k *keeper) skip(ctx context.Context, tx pgx.Tx, b *pgx.Batch, t *turn, in *instance, i *planItem) error {
	if err := safely("saga: "+k.u.name, in.restore); err != nil {
		return faultyReaction{err}
	}
	t.unfail(in)
	t.change(in, 0)
	in.history = append(in.history, flow.Entry{Kind: "action", Text: i.action + ": it goes on with what was kept behind", Actor: i.actor, Reason: i.reason})
	if err := k.passKept(ctx, tx, b, in, i); err != nil {
		return err
	}
	return t.write(ctx, tx, b)
}

// passKept removes the first input that was kept, which is the one that fails. An event counts as seen: it is in the history,
// and in the log.
func (k *keeper) passKept(ctx context.Context, tx pgx.Tx, b *pgx.Batch, in *instance, i *planItem) error {
	u := k.u
	var input int64
	var body []byte
	if err := tx.QueryRow(ctx, u.sql.inputs, u.name, in.key, in.run, 1).Scan(&input, &body); err != nil {
		return fmt.Errorf("saga: read what was kept for %s: %w", in.facts.Ref, err)
	}
	entry := flow.Entry{Kind: "ignored", Text: "an input", Actor: i.actor, Reason: i.reason}
	var f heldForm
	if err := eventstore.Msgpack.Unmarshal(body, &f); err == nil {
		switch {
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
	}
	entry.Text += ", which was kept for it and could not be taken, is passed by"
	in.history = append(in.history, entry)
	b.Queue(u.sql.taken, u.name, in.key, in.run, input, 1)
	delete(k.failed, in.place)
	i.kept = true
	return nil
}

// notedSQL counts a line of history.
const notedSQL = `
UPDATE {schema}.sagas SET entries = entries + 1, changed_at = coalesce($4::timestamptz, clock_timestamp()), revision = revision + 1
 WHERE saga = $1 AND key = $2 AND run = $3`
