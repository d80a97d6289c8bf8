package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/saga"
)

func sagaPlansCommand(s *settings) *cobra.Command {
	var of string
	var running, wait, asJSON bool
	cmd := &cobra.Command{
		Use:   "plans [PLAN]",
		Short: "List what was decided for sagas, or say how far one plan is",
		Args:  sagaArgs("[PLAN]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := planOf(args, wait)
			if err != nil {
				return err
			}
			return s.withSagas(cmd.Context(), false, func(db saga.DB) error {
				if len(args) == 0 {
					plans, err := saga.Plans(cmd.Context(), db, of, running, saga.InSchema(s.schema))
					if err != nil {
						return err
					}
					if asJSON {
						return printJSON(s.out, plans)
					}
					return printSagaPlans(s.out, plans, time.Now())
				}
				plan, err := saga.ReadPlan(cmd.Context(), db, id, saga.InSchema(s.schema))
				switch {
				case err != nil:
					return err
				case wait:
					return s.followSaga(cmd.Context(), db, plan)
				case asJSON:
					return printJSON(s.out, plan)
				}
				return printSagaPlan(s.out, plan)
			})
		},
	}
	cmd.Flags().StringVar(&of, "saga", "", "of this saga")
	cmd.Flags().BoolVar(&running, "running", false, "only those that are running")
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the plan until it ends; Ctrl-C leaves it running")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return sagaHelp(cmd, "Lists the last hundred plans, the newest first; with an id says how far that plan is, what it waits for, and which instances\n"+
		"have refused and why.\n\n"+
		"Exit codes: 0 done, 1 failed, 2 there is no such plan, 3 with --wait: the plan was cancelled, or instances refused, 130 the\n"+
		"wait was interrupted, and the plan goes on.",
		"daybook saga plans\ndaybook saga plans --saga checkout --running\ndaybook saga plans 0190f5fe-7c00-7a00-8000-000000000000 --wait")
}

func cancelPlanCommand(s *settings) *cobra.Command {
	var act action
	cmd := &cobra.Command{
		Use:   "cancel-plan PLAN --reason WHY",
		Short: "End a running plan: instances that have not had their turn are left as they are",
		Args:  sagaArgs("PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID("plan", args[0])
			if err != nil {
				return err
			}
			if act.reason == "" {
				return errors.New("--reason is missing: say why, it is kept with the plan")
			}
			return s.withSagas(cmd.Context(), true, func(db saga.DB) error {
				o := saga.Operator{DB: db, Actor: act.options().Actor, Reason: act.reason, Schema: s.schema}
				plan, err := o.CancelPlan(cmd.Context(), id)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(s.out, sagaProgress(plan))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&act.reason, "reason", "", "why; it is kept with the plan (required)")
	cmd.Flags().StringVar(&act.actor, "actor", "", "who does it (default user@host)")
	return sagaHelp(cmd, "Ends a plan that is running: what it has done stays done, and instances that have not had their turn are left as they are.\n\n"+
		"Exit codes: 0 done, 1 failed, 2 there is no such plan, or it has ended already.",
		"daybook saga cancel-plan 0190f5fe-7c00-7a00-8000-000000000000 --reason \"too early\"")
}

// followSaga prints how far a plan is, until it has ended.
func (s *settings) followSaga(ctx context.Context, db saga.DB, plan saga.Plan) error {
	every := s.every
	if every == 0 {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	said := ""
	for {
		if text := sagaProgress(plan); text != said {
			said = text
			fmt.Fprintln(s.out, text)
		}
		if !plan.Running() {
			return sagaEnding(s.out, plan)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
			next, err := saga.ReadPlan(ctx, db, plan.ID, saga.InSchema(s.schema))
			if err == nil {
				plan = next
				continue
			} else if ctx.Err() == nil {
				return fmt.Errorf("%w\nthe plan goes on: daybook saga plans %s --wait", err, plan.ID)
			}
		}
		return &exitError{exitInterrupted, fmt.Errorf("no longer waiting: plan %[1]s goes on; see `daybook saga plans %[1]s`, or `daybook saga cancel-plan %[1]s`", plan.ID)}
	}
}

func sagaProgress(p saga.Plan) string {
	text := fmt.Sprintf("%s: %d of %d done, %d refused", p.State, p.Done, p.Items, p.Refused)
	if p.Left() > 0 {
		text += fmt.Sprintf(", %d left", p.Left())
	}
	if p.Waits != "" {
		text += "; it waits: " + clean(p.Waits, 200)
	}
	return text
}

// sagaEnding says what was refused, and makes it the exit code.
func sagaEnding(out io.Writer, p saga.Plan) error {
	printRefusals(out, p)
	switch {
	case p.State != "done":
		return &exitError{exitPlan, fmt.Errorf("plan %s is %s, with %s left as they are", p.ID, p.State, counted(p.Left(), "instance"))}
	case p.Refused == 0 && p.Action == "retry":
		fmt.Fprintf(out, "its step was begun again; how that ends: daybook saga why %s KEY\n", clean(p.Saga, 100))
	case p.Refused > 0:
		return &exitError{exitPlan, fmt.Errorf("plan %s: %d of %s refused", p.ID, p.Refused, counted(p.Items, "instance"))}
	}
	return nil
}

func printRefusals(out io.Writer, p saga.Plan) {
	for _, r := range p.Refusals {
		fmt.Fprintf(out, "refused: %s run %d: %s\n", clean(r.Key, 100), r.Run, clean(r.Result, 300))
	}
}

func printSagaPlan(out io.Writer, p saga.Plan) error {
	what := p.Action
	if p.Step != "" {
		what += " " + clean(p.Step, 100)
	}
	fmt.Fprintf(out, "plan %s: %s, %s\nby %s at %s: %s\n%s\n", p.ID, what, clean(p.Selection, whole),
		clean(p.Actor, 200), p.CreatedAt.Format(time.RFC3339), clean(p.Reason, whole), sagaProgress(p))
	if p.EndedBy != "" {
		fmt.Fprintf(out, "cancelled by %s at %s: %s\n", clean(p.EndedBy, 200), p.EndedAt.Format(time.RFC3339), clean(p.EndedWhy, whole))
	}
	printRefusals(out, p)
	return nil
}

func printSagaPlans(out io.Writer, plans []saga.Plan, now time.Time) error {
	if len(plans) == 0 {
		_, err := fmt.Fprintln(out, "no plans")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PLAN\tSAGA\tACTION\tSTEP\tSTATE\tINSTANCES\tDONE\tREFUSED\tLEFT\tMADE\tBY\tREASON\tSELECTION\tWAITS")
	for _, p := range plans {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", p.ID, clean(p.Saga, 60), p.Action, clean(orNone(p.Step), 60), p.State, p.Items,
			p.Done, p.Refused, p.Left(), ago(p.CreatedAt, now), clean(p.Actor, 60), clean(p.Reason, 60), clean(p.Selection, 80), clean(orNone(p.Waits), 80))
	}
	return w.Flush()
}
