package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/outbox/deadletter"
)

func redriveCommand(s *settings) *cobra.Command {
	var sel selector
	var act action
	var rate float64
	var canary, maxFailures int
	var wait bool
	cmd := &cobra.Command{
		Use:   "redrive [LETTER]",
		Short: "Try letters again: one, that of a sequence, a group, or what flags select, as a plan that is frozen now",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			selection, err := sel.selection(args, time.Now())
			if err != nil {
				return err
			}
			switch {
			case maxFailures < 0:
				return fmt.Errorf("--max-failures %d: must be at least 1, or 0 for any number", maxFailures)
			case maxFailures == 0:
				maxFailures = -1 // any number
			}
			return s.withLetters(cmd.Context(), true, func(letters *deadletter.Letters) error {
				expect, done, err := s.preview(cmd.Context(), letters, "redrive", selection, act)
				if err != nil || done {
					return err
				}
				o := act.options()
				o.Rate, o.Canary, o.MaxFailures, o.Expect = rate, canary, maxFailures, expect
				plan, err := letters.Redrive(cmd.Context(), selection, o)
				if err != nil {
					return err
				}
				fmt.Fprintf(s.out, "plan %s: %s of %s v%d\n", plan.ID, counted(plan.Items, "letter"), clean(plan.Consumer, 200), plan.Version)
				if !wait {
					return nil
				}
				return s.follow(cmd.Context(), letters, plan)
			})
		},
	}
	sel.flags(cmd, false)
	act.flags(cmd, false)
	act.wideFlags(cmd)
	cmd.Flags().Float64Var(&rate, "rate", 0, "how many sequences are tried in a second (default: as fast as it goes)")
	cmd.Flags().IntVar(&canary, "canary", 0, "so many must succeed before the others begin; a failure among them stops the plan")
	cmd.Flags().IntVar(&maxFailures, "max-failures", 1, "so many failures stop the plan; 0 for any number")
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the plan until it ends, and what it has begun too; Ctrl-C leaves it running")
	return cmd
}

// preview says what is selected, and asks. done says that no more was wanted.
func (s *settings) preview(ctx context.Context, letters *deadletter.Letters, verb string, sel deadletter.Selection, act action) (expect int, done bool, err error) {
	p, err := letters.Preview(ctx, sel)
	if err != nil {
		return 0, false, err
	}
	if act.dryRun {
		fmt.Fprintf(s.out, "%s of %s v%d, with %s queued behind", counted(p.Letters, "letter"), clean(p.Consumer, 200), p.Version, counted(p.Queued, "message"))
		if p.NotFirst+p.Planned > 0 {
			fmt.Fprintf(s.out, "; %d are behind others of their sequences, %d in plans that are running", p.NotFirst, p.Planned)
		}
		fmt.Fprintln(s.out)
		if err := printLetters(s.out, deadletter.Page{Letters: p.Examples}, time.Now()); err != nil {
			return 0, false, err
		}
		fmt.Fprintln(s.out, "nothing was changed")
		return 0, true, nil
	}
	expect, err = s.confirm(ctx, verb, p, act.yes)
	return expect, false, err
}

// follow prints how far a plan is, until it has ended and what of it had begun has too.
func (s *settings) follow(ctx context.Context, letters *deadletter.Letters, plan deadletter.Plan) error {
	every := s.every
	if every == 0 {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	said := ""
	for {
		if text := progress(plan); text != said {
			said = text
			fmt.Fprintln(s.out, text)
		}
		if plan.Settled() {
			return ending(s.out, plan)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
			id := plan.ID
			var err error
			if plan, err = letters.Plan(ctx, id); err == nil {
				continue
			} else if ctx.Err() == nil {
				return fmt.Errorf("%w\nthe plan goes on: daybook deadletter plans %s --wait", err, id)
			}
			plan.ID = id
		}
		return &exitError{exitInterrupted, fmt.Errorf("no longer waiting: plan %[1]s goes on; see `daybook deadletter plans %[1]s`, or `daybook deadletter cancel %[1]s`", plan.ID)}
	}
}

func progress(p deadletter.Plan) string {
	text := fmt.Sprintf("%s: %d of %d succeeded, %d failed", p.State, p.Succeeded, p.Items, p.Failed)
	if p.Skipped > 0 {
		text += fmt.Sprintf(", %d no longer open", p.Skipped)
	}
	if p.Trying > 0 {
		text += fmt.Sprintf(", %d being tried again", p.Trying)
	}
	if p.Left() > 0 {
		text += fmt.Sprintf(", %d left", p.Left())
	}
	if p.Running() && p.Canary > 0 && p.Succeeded+p.Skipped < min(p.Canary, p.Items) {
		text += fmt.Sprintf(", %d of them before the others begin", min(p.Canary, p.Items)-p.Succeeded-p.Skipped)
	}
	if p.ETA != "" {
		text += ", time left: " + p.ETA
	}
	return text
}

// ending says what failed, and makes it the exit code.
func ending(out io.Writer, p deadletter.Plan) error {
	for _, f := range p.Failures {
		fmt.Fprintf(out, "failed again: letter %s, sequence %s: %s\n", f.Letter, clean(f.Sequence, 200), clean(f.Error, 200))
	}
	switch {
	case p.State != "done":
		was := "were"
		if p.Left() == 1 {
			was = "was"
		}
		return &exitError{exitPlan, fmt.Errorf("plan %s is %s, %s %s not tried", p.ID, p.State, counted(p.Left(), "letter"), was)}
	case p.Failed > 0:
		return &exitError{exitPlan, fmt.Errorf("plan %s: %d of %s failed again", p.ID, p.Failed, counted(p.Items, "letter"))}
	}
	return nil
}

func discardCommand(s *settings) *cobra.Command {
	var sel selector
	var act action
	cmd := &cobra.Command{
		Use:   "discard [LETTER] --reason WHY",
		Short: "Decide that letters take no effect: what is queued behind them goes on without them",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			selection, err := sel.selection(args, time.Now())
			if err != nil {
				return err
			}
			if act.reason == "" && !act.dryRun {
				return errors.New("--reason is missing: say why, it is kept with the letters")
			}
			return s.withLetters(cmd.Context(), true, func(letters *deadletter.Letters) error {
				expect, done, err := s.preview(cmd.Context(), letters, "discard", selection, act)
				if err != nil || done {
					return err
				}
				o := act.options()
				o.Expect = expect
				d, err := letters.Discard(cmd.Context(), selection, o)
				if n := len(d.Letters); n > 0 {
					fmt.Fprintf(s.out, "discarded %s; daybook deadletter undo takes one back as long as nothing later of its sequence has taken effect\n", counted(n, "letter"))
				}
				if d.Left > 0 {
					fmt.Fprintf(s.out, "left %s, which others have changed meanwhile\n", counted(d.Left, "letter"))
				}
				return err
			})
		},
	}
	sel.flags(cmd, false)
	act.flags(cmd, true)
	act.wideFlags(cmd)
	return cmd
}

func undoCommand(s *settings) *cobra.Command {
	var act action
	cmd := &cobra.Command{
		Use:   "undo LETTER",
		Short: "Put a discarded letter back, as long as nothing later of its sequence has taken effect",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID("letter", args[0])
			if err != nil {
				return err
			}
			return s.withLetters(cmd.Context(), true, func(letters *deadletter.Letters) error {
				if err := letters.Undo(cmd.Context(), id, act.options()); err != nil {
					return err
				}
				_, err := fmt.Fprintf(s.out, "letter %s waits again: redrive it, or discard it\n", id)
				return err
			})
		},
	}
	act.flags(cmd, false)
	return cmd
}

func plansCommand(s *settings) *cobra.Command {
	var consumer string
	var running, wait, asJSON bool
	cmd := &cobra.Command{
		Use:   "plans [PLAN]",
		Short: "List the plans to try letters again, or say how far one is",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := planOf(args, wait)
			if err != nil {
				return err
			}
			return s.withLetters(cmd.Context(), false, func(letters *deadletter.Letters) error {
				if len(args) == 0 {
					plans, err := letters.Plans(cmd.Context(), consumer, running)
					if err != nil {
						return err
					}
					if asJSON {
						return printJSON(s.out, plans)
					}
					return printPlans(s.out, plans, time.Now())
				}
				plan, err := letters.Plan(cmd.Context(), id)
				switch {
				case err != nil:
					return err
				case wait:
					return s.follow(cmd.Context(), letters, plan)
				case asJSON:
					return printJSON(s.out, plan)
				}
				fmt.Fprintf(s.out, "plan %s of %s v%d: %s\nby %s at %s: %s\n%s\n", plan.ID, clean(plan.Consumer, 200), plan.Version, clean(plan.Selection, whole),
					clean(plan.Actor, 200), plan.CreatedAt.Format(time.RFC3339), clean(orNone(plan.Reason), whole), progress(plan))
				for _, f := range plan.Failures {
					fmt.Fprintf(s.out, "failed again: letter %s, sequence %s: %s\n", f.Letter, clean(f.Sequence, 200), clean(f.Error, 200))
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&consumer, "consumer", "", "of this consumer")
	cmd.Flags().BoolVar(&running, "running", false, "only those that are running")
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the plan until it ends, and what it has begun too; Ctrl-C leaves it running")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printPlans(out io.Writer, plans []deadletter.Plan, now time.Time) error {
	if len(plans) == 0 {
		_, err := fmt.Fprintln(out, "no plans")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PLAN\tCONSUMER\tSTATE\tLETTERS\tSUCCEEDED\tFAILED\tTRYING\tLEFT\tTIME LEFT\tMADE\tBY\tSELECTION")
	for _, p := range plans {
		fmt.Fprintf(w, "%s\t%s v%d\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", p.ID, clean(p.Consumer, 60), p.Version, p.State, p.Items, p.Succeeded, p.Failed,
			p.Trying, p.Left(), orNone(p.ETA), ago(p.CreatedAt, now), clean(p.Actor, 60), clean(p.Selection, 80))
	}
	return w.Flush()
}

func cancelCommand(s *settings) *cobra.Command {
	var act action
	cmd := &cobra.Command{
		Use:   "cancel PLAN",
		Short: "End a running plan: what has not begun is not tried, what has begun goes on",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID("plan", args[0])
			if err != nil {
				return err
			}
			return s.withLetters(cmd.Context(), true, func(letters *deadletter.Letters) error {
				if err := letters.Cancel(cmd.Context(), id, act.options()); err != nil {
					return err
				}
				plan, err := letters.Plan(cmd.Context(), id)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(s.out, "%s\n", progress(plan))
				return err
			})
		},
	}
	act.flags(cmd, false)
	return cmd
}

// planOf is the plan that a command line names, if it does; one to wait for must be named.
func planOf(args []string, wait bool) (id uuid.UUID, err error) {
	switch {
	case len(args) == 1:
		return parseID("plan", args[0])
	case wait:
		return id, errors.New("--wait needs the plan to wait for")
	}
	return id, nil
}
