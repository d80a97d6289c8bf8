package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/eventstore/postgres"
)

func statusCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the schema version, the head of the log and who holds it, and every consumer",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withStore(cmd.Context(), func(store *postgres.Store) error {
				status, err := store.Status(cmd.Context())
				if err != nil {
					return err
				}
				return printStatus(s.out, status, time.Now())
			})
		},
	}
}

func printStatus(out io.Writer, st postgres.Status, now time.Time) error {
	fmt.Fprintf(out, "schema      %q, version %d\n", st.Schema, st.SchemaVersion)
	fmt.Fprintf(out, "epoch       %s, %d partitions, since %s\n", st.Epoch.Epoch, st.Epoch.Partitions, st.Epoch.CreatedAt.UTC().Format(time.RFC3339))
	fmt.Fprintf(out, "safe head   %s of %s\n", st.SafeHead, st.Highest)
	if st.Blocker != nil {
		fmt.Fprintf(out, "held by     %s\n", st.Blocker)
	}
	if len(st.Consumers) == 0 {
		_, err := fmt.Fprintln(out, "consumers   none")
		return err
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CONSUMER\tVERSION\tSEGMENT\tKIND\tSTATE\tAPPLIED\tBEHIND\tOLDEST\tOWNER\tREASON")
	for _, c := range st.Consumers {
		oldest, owner := "-", "-"
		if !c.Oldest.IsZero() {
			oldest = now.Sub(c.Oldest).Round(time.Millisecond).String()
		}
		if c.Owner != "" {
			owner = c.Owner
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%d positions\t%s\t%s\t%s\n",
			c.Consumer, c.Version, c.Segment, c.Kind, c.State, c.Applied, c.Positions, oldest, owner, c.Reason)
	}
	return w.Flush()
}

func checkCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Read the whole log and compare it with the heads of the streams",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withStore(cmd.Context(), func(store *postgres.Store) error {
				const most = 100
				defects, err := store.Check(cmd.Context(), most)
				if err != nil {
					return err
				}
				for _, d := range defects {
					fmt.Fprintln(s.out, d)
				}
				if len(defects) > 0 {
					return fmt.Errorf("check: %d defects (at most %d are shown): something wrote past the store; see docs/operations.md", len(defects), most)
				}
				_, err = fmt.Fprintln(s.out, "no defects")
				return err
			})
		},
	}
}
