package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/outbox/deadletter"
	"github.com/daybook-go/daybook/saga"
)

// The program's exit codes besides 0 and 1.
const (
	exitRefused     = 2   // nothing was changed: against the order or the state, nothing selected, or not confirmed
	exitPlan        = 3   // the plan that was waited for was stopped or cancelled, or something of it failed
	exitStuck       = 3   // the saga that was asked about does not go on by itself
	exitInterrupted = 130 // the wait was ended; the plan goes on
)

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// exitCode is what the program ends with.
func exitCode(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, deadletter.ErrRefused), errors.Is(err, deadletter.ErrNotFound),
		errors.Is(err, saga.ErrOperatorRefused), errors.Is(err, saga.ErrNoInstance), errors.Is(err, saga.ErrNoPlan):
		return exitRefused
	}
	return 1
}

func deadletterCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deadletter",
		Short: "List, show, redrive and discard dead letters",
		Long: "A message that fails becomes a letter. Its sequence, which is everything with its partition key, is set aside until the\n" +
			"letter is applied or discarded; other keys go on.\n\n" +
			"Nothing here applies a message: a redrive writes a plan, which the processes that own the partitions carry out, in\n" +
			"order, and which goes on without this program.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 refused or nothing selected, 3 the plan waited for was stopped or cancelled or had\n" +
			"failures, 130 the wait was interrupted and the plan goes on.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, // without it any argument would do
	}
	cmd.AddCommand(listCommand(s), groupsCommand(s), showCommand(s), redriveCommand(s), discardCommand(s), undoCommand(s),
		plansCommand(s), cancelCommand(s), deadStatusCommand(s))
	return cmd
}

// withLetters runs f with the dead letters of the store. A change is never made in a database that nobody named.
func (s *settings) withLetters(ctx context.Context, change bool, f func(*deadletter.Letters) error) error {
	if change && !s.named() {
		return errors.New("no database: give --database URL or set DAYBOOK_DATABASE_URL")
	}
	pool, release, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	letters, err := deadletter.New(pool, deadletter.Config{Schema: s.schema})
	if err != nil {
		return err
	}
	return f(letters)
}

func listCommand(s *settings) *cobra.Command {
	var sel selector
	var limit int
	var after string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List letters: those that are open, or as the flags say; payloads are never shown",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := sel.filter(time.Now())
			if err != nil {
				return err
			}
			if limit < 1 {
				return fmt.Errorf("--limit %d: must be at least 1", limit)
			}
			f.After = after
			return s.withLetters(cmd.Context(), false, func(letters *deadletter.Letters) error {
				page, err := listUpTo(cmd.Context(), letters, f, limit)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(s.out, page)
				}
				return printLetters(s.out, page, time.Now())
			})
		},
	}
	sel.flags(cmd, true)
	cmd.Flags().IntVar(&limit, "limit", 100, "how many letters at most")
	cmd.Flags().StringVar(&after, "after", "", "go on where a list with the same flags has ended: what it said after \"more:\"")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// listUpTo goes through pages that have little until there are enough letters.
func listUpTo(ctx context.Context, letters *deadletter.Letters, f deadletter.Filter, limit int) (deadletter.Page, error) {
	all := deadletter.Page{Letters: []deadletter.Letter{}}
	for {
		f.Limit = min(limit-len(all.Letters), 1000)
		page, err := letters.List(ctx, f)
		if err != nil {
			return all, err
		}
		all.Letters = append(all.Letters, page.Letters...)
		f.After, all.Next = page.Next, page.Next
		if page.Next == "" || len(all.Letters) >= limit {
			return all, nil
		}
	}
}

func groupsCommand(s *settings) *cobra.Command {
	var sel selector
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "Group the open letters by what caused them, those with the most letters first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := sel.filter(time.Now())
			if err != nil {
				return err
			}
			f.Limit = limit
			return s.withLetters(cmd.Context(), false, func(letters *deadletter.Letters) error {
				groups, err := letters.Groups(cmd.Context(), f)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(s.out, groups)
				}
				return printGroups(s.out, groups, time.Now())
			})
		},
	}
	sel.groupFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "how many groups at most")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func showCommand(s *settings) *cobra.Command {
	var raw string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show LETTER",
		Short: "Show all that is known of a letter, its message included, which may be secret",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID("letter", args[0])
			if err != nil {
				return err
			}
			return s.withLetters(cmd.Context(), false, func(letters *deadletter.Letters) error {
				d, err := letters.Show(cmd.Context(), id)
				switch {
				case err != nil:
					return err
				case raw != "":
					return s.writeRaw(raw, d.Message.Data)
				case asJSON:
					return printJSON(s.out, detailJSON(d))
				}
				return printDetail(s.out, d, time.Now())
			})
		},
	}
	cmd.Flags().StringVar(&raw, "raw", "", "write the bytes of the message to this `FILE`, which must not exist, or to - for the output, and nothing else")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON; the payload in base64")
	return cmd
}

// writeRaw gives the file to its owner only.
func (s *settings) writeRaw(name string, data []byte) error {
	if name == "-" {
		_, err := s.out.Write(data)
		return err
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

func deadStatusCommand(s *settings) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Count what is set aside of each consumer",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withLetters(cmd.Context(), false, func(letters *deadletter.Letters) error {
				status, err := letters.Status(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(s.out, status)
				}
				return printDeadStatus(s.out, status, time.Now())
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func parseID(what, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, fmt.Errorf("%q is not the id of a %s, which looks like 0190f5fe-7c00-7a00-8000-000000000000", text, what)
	}
	return id, nil
}

func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
