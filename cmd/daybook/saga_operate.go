package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/saga"
)

// sagaAction are the flags of what is decided for instances.
type sagaAction struct {
	action
	sagaFilter
	step string
	rate float64
	wait bool
}

func (a *sagaAction) addFlags(cmd *cobra.Command, step string) {
	f := cmd.Flags()
	f.StringVar(&a.reason, "reason", "", "why; it is kept with the plan and in the history of each instance (required)")
	f.StringVar(&a.actor, "actor", "", "who decides (default user@host)")
	f.BoolVar(&a.yes, "yes", false, "do not ask when more than one instance is selected")
	f.BoolVar(&a.dryRun, "dry-run", false, "say what is selected, and change nothing")
	f.BoolVar(&a.stuck, "all-stuck", false, "in place of keys: all that managers have stored as stuck; not what daybook saga list --stuck finds besides")
	f.StringVar(&a.because, "reason-is", "", "in place of keys: all that are stuck for it: dead_letter, reply_overdue, compensation_failed, handler_missing, paused")
	f.StringVar(&a.state, "state", "", "in place of keys, or with --all-stuck: all that are running, or compensating")
	f.DurationVar(&a.older, "older", 0, "of those, only what has not changed, or is stuck, for so long")
	f.Float64Var(&a.rate, "rate", 0, "how many instances have their turn in a second (default: as fast as it goes)")
	f.BoolVar(&a.wait, "wait", false, "follow the plan until it ends; Ctrl-C leaves it running")
	if step != "" {
		f.StringVar(&a.step, "step", "", step)
	}
}

// selection is what is named, or what the flags say.
func (a *sagaAction) selection(cmd *cobra.Command, args []string) (saga.Selection, error) {
	f, err := a.filter(cmd, args[0])
	switch {
	case err != nil:
		return saga.Selection{}, err
	case a.sagaFilter == (sagaFilter{}) && len(args) == 1:
		return saga.Selection{}, &exitError{exitRefused, errors.New("nothing is selected: name keys, or give --all-stuck, --reason-is or --state")}
	case len(args) == 1:
		return saga.Matching(f), nil
	case a.sagaFilter != (sagaFilter{}):
		return saga.Selection{}, errors.New("name keys, or select with flags, not both")
	}
	return saga.Of(args[0], args[1:]...), nil
}

// decision makes a command of what an operator can do.
func (s *settings) decision(use, short, step string, stepNeeded bool, more func(*cobra.Command), decide func(ctx context.Context, o saga.Operator, sel saga.Selection, step string) (saga.Plan, error)) *cobra.Command {
	a := &sagaAction{}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  sagaArgs("SAGA [KEY…]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			sel, err := a.selection(cmd, args)
			switch {
			case err != nil:
				return err
			case a.reason == "" && !a.dryRun:
				return errors.New("--reason is missing: say why, it is kept with the instances")
			case stepNeeded && a.step == "":
				return errors.New("--step is missing: name the step")
			}
			return s.withSagas(cmd.Context(), true, func(db saga.DB) error {
				o := saga.Operator{DB: db, Actor: a.options().Actor, Reason: a.reason, Schema: s.schema, Rate: a.rate}
				preview, expect, done, err := s.previewSagas(cmd.Context(), o, cmd.Name(), sel, a.action)
				if err != nil || done {
					return err
				}
				o.Expect = expect
				plan, err := decide(cmd.Context(), o, sel, a.step)
				if err != nil {
					return err
				}
				fmt.Fprintf(s.out, "plan %s: %s %s of %s\n", plan.ID, plan.Action, counted(plan.Items, "instance"), clean(plan.Saga, 100))
				if out := preview.LeftOut(); out != "" {
					fmt.Fprintf(s.out, "left out: %s\n", out)
				}
				if plan.Waits != "" && !a.wait {
					fmt.Fprintf(s.out, "it waits: %s\n", clean(plan.Waits, 200))
				}
				if !a.wait {
					return nil
				}
				return s.followSaga(cmd.Context(), db, plan)
			})
		},
	}
	a.addFlags(cmd, step)
	if more != nil {
		more(cmd)
	}
	return cmd
}

// previewSagas says what is selected, and asks. done says that no more was wanted.
func (s *settings) previewSagas(ctx context.Context, o saga.Operator, verb string, sel saga.Selection, act action) (p saga.Preview, expect int, done bool, err error) {
	if p, err = o.Preview(ctx, sel); err != nil {
		return p, 0, false, err
	}
	text := fmt.Sprintf("%s of %s", counted(p.Instances, "instance"), clean(p.Saga, 100))
	if out := p.LeftOut(); out != "" {
		text += "; left out: " + out
	}
	switch {
	case act.dryRun:
		fmt.Fprintln(s.out, text)
		for _, i := range p.Examples {
			fmt.Fprintf(s.out, "  %s run %d, %s %s %s\n", clean(i.Key, 100), i.Run, i.State, i.Reason, clean(i.Step, 60))
		}
		fmt.Fprintln(s.out, "nothing was changed")
		return p, 0, true, nil
	case p.Instances <= 1 || act.yes:
		return p, 0, false, nil
	}
	return p, p.Instances, false, s.ask(ctx, fmt.Sprintf("%s %s?", capital(verb), text), counted(p.Instances, "instance")+" are selected", verb)
}

func retryCommand(s *settings) *cobra.Command {
	return sagaHelp(s.decision("retry SAGA [KEY…] --reason WHY", "Do a step now: what waits is sent again, which is the same command; what has failed is tried anew",
		"the step (default: the one at which the instance is stuck, or that it waits for)", false, nil,
		func(ctx context.Context, o saga.Operator, sel saga.Selection, step string) (saga.Plan, error) {
			return o.Retry(ctx, sel, step)
		}), "Does a step now. What waits is sent again, which is the same command under the same id; what has failed, or is stuck, is tried\nanew, without waiting for its pause. Timers that were given up come again, and so does what was kept and fails."+sagaDecides,
		"daybook saga retry checkout 812 --step take-payment --reason \"the bank is back\"\ndaybook saga retry checkout --all-stuck --rate 5 --reason \"fixed in 1.4.2\" --wait")
}

func answerCommand(s *settings) *cobra.Command {
	var a saga.HandAnswer
	var payload string
	return sagaHelp(s.decision("answer SAGA [KEY…] --step STEP --reason WHY", "Say by hand how a step ended: that it was done, or with --refused that it was not", "the step (required)", true,
		func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&a.Refused, "refused", false, "it was definitely not done, and is not tried again")
			cmd.Flags().StringVar(&a.Type, "event", "", "fold the state as by an event of this type, whose payload is --payload")
			cmd.Flags().StringVar(&payload, "payload", "", "the event as JSON")
		},
		func(ctx context.Context, o saga.Operator, sel saga.Selection, step string) (saga.Plan, error) {
			if payload != "" {
				a.Payload = json.RawMessage(payload)
			}
			return o.Answer(ctx, sel, step, a)
		}), "Says by hand how a step ended, when somebody has found out: it counts as done, or with --refused as definitely not done. With\n--event and --payload the state is folded as by that event."+sagaDecides,
		"daybook saga answer checkout 812 --step take-payment --reason \"the bank says so\"\ndaybook saga answer checkout 812 --step take-payment --event payment.taken --payload '{\"receipt\":\"r1\"}' --reason \"by telephone\"")
}

func sagaCancelCommand(s *settings) *cobra.Command {
	return sagaHelp(s.decision("cancel SAGA [KEY…] --reason WHY", "Compensate: undo what was done, in reverse; refused behind the pivot", "", false, nil,
		func(ctx context.Context, o saga.Operator, sel saga.Selection, _ string) (saga.Plan, error) {
			return o.Cancel(ctx, sel)
		}), "Compensates: what was done is undone, in reverse. Behind the pivot an instance refuses. One that cannot take what was kept for\nit passes that by."+sagaDecides,
		"daybook saga cancel checkout 812 --reason \"the customer has called\"")
}

func markCommand(s *settings) *cobra.Command {
	return sagaHelp(s.decision("mark SAGA [KEY…] --step STEP --reason WHY", "Say that a step counts as undone: somebody has undone it by hand", "the step (required)", true, nil,
		func(ctx context.Context, o saga.Operator, sel saga.Selection, step string) (saga.Plan, error) {
			return o.MarkUndone(ctx, sel, step)
		}), "Says that a step counts as undone, because somebody has undone it by hand: the compensation goes on with the next one."+sagaDecides,
		"daybook saga mark checkout 812 --step take-payment --reason \"refunded at the counter\"")
}

func skipCommand(s *settings) *cobra.Command {
	return sagaHelp(s.decision("skip SAGA [KEY…] --reason WHY", "Pass by what was kept for an instance and fails: it goes on with what was kept behind it", "", false, nil,
		func(ctx context.Context, o saga.Operator, sel saga.Selection, _ string) (saga.Plan, error) {
			return o.Skip(ctx, sel)
		}), "Passes by what was kept for an instance, while it was paused or its version was missing, and what its definition fails at: that\ncounts as seen and has no effect. The instance goes on with what was kept behind it. A timer is not\npassed by: nothing might wake the instance any more."+sagaDecides,
		"daybook saga skip checkout 812 --reason \"a receipt without a number\"")
}

func pauseCommand(s *settings) *cobra.Command {
	return sagaHelp(s.decision("pause SAGA [KEY…] --reason WHY", "Let instances stand still: what comes for them is kept", "", false, nil,
		func(ctx context.Context, o saga.Operator, sel saga.Selection, _ string) (saga.Plan, error) {
			return o.Pause(ctx, sel)
		}), "Lets instances stand still: what comes for them is kept, and their timers do nothing until they are resumed."+sagaDecides,
		"daybook saga pause checkout 812 --reason stocktaking\ndaybook saga pause checkout --state running --reason stocktaking --yes")
}

func resumeCommand(s *settings) *cobra.Command {
	var shift bool
	return sagaHelp(s.decision("resume SAGA [KEY…] --reason WHY", "Let paused instances go on: they first take what was kept, in order", "", false,
		func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&shift, "shift", false, "move their timers by as long as they were paused")
		},
		func(ctx context.Context, o saga.Operator, sel saga.Selection, _ string) (saga.Plan, error) {
			return o.Resume(ctx, sel, shift)
		}), "Lets paused instances go on: they first take what was kept, in order. Timers that were due meanwhile fire at once, unless\n--shift moves them by as long as the instance was paused."+sagaDecides,
		"daybook saga resume checkout 812 --reason \"the stock is counted\"\ndaybook saga resume checkout --reason-is paused --shift --reason \"the stock is counted\" --yes")
}
