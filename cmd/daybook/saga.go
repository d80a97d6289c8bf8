package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/saga"
)

func sagaCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "saga",
		Short: "Say what sagas wait for and why, list them, and decide what people must decide",
		Long: "A saga that does not go on by itself says where and why, and what to type.\n\n" +
			"Nothing here carries anything out: what is decided becomes a plan, with who and why, which the managers of the saga carry\n" +
			"out, and which goes on without this program.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 refused or nothing selected, 3 the saga asked about is stuck, or the plan waited for was\n" +
			"cancelled or had refusals, 130 the wait was interrupted and the plan goes on.",
		Args: unknownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, // without it any argument would do
	}
	cmd.SetFlagErrorFunc(unknownFlag)
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(whyCommand(s), historyCommand(s), sagaListCommand(s),
		retryCommand(s), answerCommand(s), sagaCancelCommand(s), markCommand(s), skipCommand(s), pauseCommand(s), resumeCommand(s),
		sagaPlansCommand(s), cancelPlanCommand(s), withdrawCommand(s))
	return cmd
}

// withSagas runs f with the database of the store. A change is never made in a database that nobody named.
func (s *settings) withSagas(ctx context.Context, change bool, f func(saga.DB) error) error {
	if change && !s.named() {
		return errors.New("no database: give --database URL or set DAYBOOK_DATABASE_URL")
	}
	pool, release, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	return f(pool)
}

func whyCommand(s *settings) *cobra.Command {
	var run int
	var overdue time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "why SAGA KEY",
		Short: "Say what an instance waits for, since when and why, what happens next, and what to do; exit code 3 when it is stuck",
		Args:  sagaArgs("SAGA KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if overdue <= 0 {
				return fmt.Errorf("--overdue %v: must be above 0", overdue)
			}
			return s.withSagas(cmd.Context(), false, func(db saga.DB) error {
				e, err := saga.Explain(cmd.Context(), db, args[0], args[1], saga.InSchema(s.schema), saga.OfRun(run), saga.OverdueAfter(overdue))
				if err != nil {
					return err
				}
				if asJSON {
					err = printJSON(s.out, e)
				} else {
					err = printWhy(s.out, e)
				}
				if err == nil && e.Stuck {
					return &exitError{exitStuck, fmt.Errorf("%s %q is stuck: %s", clean(e.Saga, 100), e.Key, e.Reason)}
				}
				return err
			})
		},
	}
	cmd.Flags().IntVar(&run, "run", 0, "of this run, from 1 (default: the one that is under way, else the last)")
	cmd.Flags().DurationVar(&overdue, "overdue", time.Hour, "how long a step without a deadline may wait for an answer")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: all that is known, the history included")
	return sagaHelp(cmd, "Says in one sentence what an instance waits for and since when, what it sent and where that is, which timer fires next, and\n"+
		"what keeps it; then what to type, and all that is known. It reads the database alone: no manager has to run.\n\n"+
		"Exit codes: 0 it goes on or has ended, 1 failed, 2 there is no such saga, instance or run, 3 it is stuck: it does not go on\n"+
		"by itself.",
		"daybook saga why checkout 812\ndaybook saga why checkout 812 --json")
}

func historyCommand(s *settings) *cobra.Command {
	var run int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "history SAGA KEY",
		Short: "Show what has happened to an instance, the last 500 lines",
		Args:  sagaArgs("SAGA KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withSagas(cmd.Context(), false, func(db saga.DB) error {
				e, err := saga.Explain(cmd.Context(), db, args[0], args[1], saga.InSchema(s.schema), saga.OfRun(run))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(s.out, e.Timeline)
				}
				return printTimeline(s.out, e)
			})
		},
	}
	cmd.Flags().IntVar(&run, "run", 0, "of this run, from 1 (default: the one that is under way, else the last)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return sagaHelp(cmd, "Shows the timeline of an instance: events, commands, timers, retries, and what people decided, who and why."+sagaReads,
		"daybook saga history checkout 812")
}

// sagaFilter are the flags that select instances.
type sagaFilter struct {
	stuck          bool
	because, state string
	older          time.Duration
}

func (f *sagaFilter) filter(cmd *cobra.Command, name string) (saga.Filter, error) {
	if err := noneEmpty(cmd); err != nil {
		return saga.Filter{}, err
	}
	return saga.Filter{Saga: name, Stuck: f.stuck, Reason: f.because, State: f.state, Older: f.older}, nil
}

func sagaListCommand(s *settings) *cobra.Command {
	var f sagaFilter
	var limit int
	var after string
	var overdue time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list SAGA",
		Short: "List the instances of a saga",
		Args:  sagaArgs("[SAGA]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return s.withSagas(cmd.Context(), false, func(db saga.DB) error {
					names, err := s.sagaNames(cmd.Context(), db)
					if err != nil {
						return err
					}
					return fmt.Errorf("name the saga: daybook saga list SAGA; %s", thereAre(names))
				})
			}
			filter, err := f.filter(cmd, args[0])
			if err != nil {
				return err
			}
			if limit < 1 {
				return fmt.Errorf("--limit %d: must be at least 1", limit)
			}
			if overdue <= 0 {
				return fmt.Errorf("--overdue %v: must be above 0", overdue)
			}
			filter.After = after
			return s.withSagas(cmd.Context(), false, func(db saga.DB) error {
				page, err := s.listSagas(cmd.Context(), db, filter, limit, overdue)
				if err != nil {
					return err
				}
				if len(page.Sagas) == 0 && page.Next == "" {
					names, err := s.sagaNames(cmd.Context(), db)
					if err != nil {
						return err
					}
					if !slices.Contains(names, filter.Saga) {
						return &exitError{exitRefused, fmt.Errorf("no saga %q; %s", filter.Saga, thereAre(names))}
					}
				}
				if asJSON {
					return printJSON(s.out, page)
				}
				return printSagas(s.out, filter, page, time.Now())
			})
		},
	}
	cmd.Flags().BoolVar(&f.stuck, "stuck", false, "only those that do not go on by themselves, as daybook saga why says")
	cmd.Flags().StringVar(&f.because, "reason-is", "", "only those with this reason: dead_letter, reply_overdue, timer_overdue, compensation_failed, handler_missing, paused, outbox_blocked, retrying")
	cmd.Flags().DurationVar(&overdue, "overdue", time.Hour, "how long a step without a deadline may wait for an answer")
	cmd.Flags().StringVar(&f.state, "state", "", "only those that are running, compensating, completed or compensated")
	cmd.Flags().DurationVar(&f.older, "older", 0, "only those that have not changed, or are stuck, for so long")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most")
	cmd.Flags().StringVar(&after, "after", "", "go on where a list with the same flags has ended: what it said after \"more:\"")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return sagaHelp(cmd, "Lists the instances of a saga by their keys; those of a state by when they changed or ended. With --stuck or --reason-is it\n"+
		"lists those that do not go on, by the rule of `daybook saga why`: those that managers have stored first, then those that are\n"+
		"paused, then what is found besides: overdue timers, answers that do not come, commands that do not move, dead letters."+sagaReads,
		"daybook saga list checkout --stuck\ndaybook saga list checkout --reason-is retrying --older 10m\ndaybook saga list checkout --state compensating --limit 20")
}

// sagaNames are the sagas that are installed or have instances.
func (s *settings) sagaNames(ctx context.Context, db saga.DB) ([]string, error) {
	counts, err := saga.Counts(ctx, db, saga.InSchema(s.schema)) // which says what is wrong when there is no store
	if err != nil {
		return nil, err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it has only read
	rows, err := tx.Query(ctx, strings.ReplaceAll(installedSQL, "{schema}", pgx.Identifier{s.schema}.Sanitize()))
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, c := range counts {
		names = append(names, c.Saga)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// Each saga has a consumer of what happens, and one of the replies.
const installedSQL = `
SELECT DISTINCT substr(c.consumer, 6) FROM {schema}.consumers c
 WHERE c.kind = 'saga' AND c.consumer LIKE 'saga-%' AND c.consumer NOT LIKE '%-replies' LIMIT 100`

func thereAre(names []string) string {
	switch len(names) {
	case 0:
		return "there are none in this store"
	case 1:
		return "there is " + clean(names[0], 100)
	}
	return "there are " + clean(strings.Join(names, ", "), whole)
}

// listSagas goes through pages that have little until there are enough.
func (s *settings) listSagas(ctx context.Context, db saga.DB, f saga.Filter, limit int, overdue time.Duration) (saga.Page, error) {
	all := saga.Page{Sagas: []saga.Summary{}}
	for {
		f.Limit = min(limit-len(all.Sagas), 1000)
		page, err := saga.List(ctx, db, f, saga.InSchema(s.schema), saga.OverdueAfter(overdue))
		if err != nil {
			return all, err
		}
		all.Sagas = append(all.Sagas, page.Sagas...)
		f.After, all.Next = page.Next, page.Next
		if page.Next == "" || len(all.Sagas) >= limit {
			return all, nil
		}
	}
}
