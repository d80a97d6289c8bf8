package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/retry"
	"github.com/daybook-go/daybook/saga"
	"github.com/daybook-go/daybook/saga/schedule"
)

func statusCommand(s *settings) *cobra.Command {
	var over time.Duration
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the schema version, the head of the log and who holds it, every consumer, what sagas have under way, and how schedules do",
		Long: `Show the schema version, the head of the log and who holds it, every consumer,
what sagas have under way, how many schedules there are, and which of them are
late or have failed the last time.

With --over it looks twice and also says how long each consumer needs for what it
is behind, if all goes on as it did in between: behind ÷ (rate − arrivals).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if over < 0 {
				return fmt.Errorf("status: --over %v is below 0: say for how long to look, for example 10s", over)
			}
			return s.withPool(cmd.Context(), func(pool *pgxpool.Pool, store *postgres.Store) error {
				status, err := store.Status(cmd.Context())
				if err != nil {
					return err
				}
				if over == 0 {
					if err := printStatus(s.out, status, nil, time.Now()); err != nil {
						return err
					}
					counts, err := saga.Counts(cmd.Context(), pool, saga.InSchema(s.schema))
					if err != nil {
						return err
					}
					if err := printCounts(s.out, counts, time.Now()); err != nil {
						return err
					}
					schedules, err := schedule.Summarize(cmd.Context(), pool, schedule.InSchema(s.schema), schedule.AtMost(troubled))
					if err != nil {
						return err
					}
					return printSchedules(s.out, schedules, time.Now())
				}
				began := time.Now()
				timer := time.NewTimer(over)
				defer timer.Stop()
				select {
				case <-cmd.Context().Done():
					return cmd.Context().Err()
				case <-timer.C:
				}
				later, err := store.Status(cmd.Context())
				if err != nil {
					return err
				}
				return printStatus(s.out, later, timeLeft(status, later, time.Since(began)), time.Now())
			})
		},
	}
	command.Flags().DurationVar(&over, "over", 0, "look twice, so long apart, and estimate how long each consumer needs for what it is behind")
	return command
}

// place is a row of the status.
type place struct {
	consumer         string
	version, segment int
}

func placeOf(c postgres.ConsumerStatus) place { return place{c.Consumer, c.Version, c.Segment} }

// timeLeft estimates for each consumer how long what it is behind takes. A segment is the work of one process.
func timeLeft(before, after postgres.Status, took time.Duration) map[place]string {
	arrivals := float64(after.SafeHead.Ordinal()-before.SafeHead.Ordinal()) / took.Seconds()
	was := map[place]eventstore.Position{}
	for _, c := range before.Consumers {
		was[placeOf(c)] = c.Applied
	}
	left := map[place]string{}
	for _, c := range after.Consumers {
		if at, known := was[placeOf(c)]; known && !c.Foreign() {
			rate := float64(c.Applied.Ordinal()-at.Ordinal()) / took.Seconds()
			left[placeOf(c)] = retry.Drain(c.Positions, 1, rate, arrivals).String()
		}
	}
	return left
}

// printStatus prints how much time is left where that is known: left is nil when nobody asked.
func printStatus(out io.Writer, st postgres.Status, left map[place]string, now time.Time) error {
	fmt.Fprintf(out, "schema      %q, version %d\n", st.Schema, st.SchemaVersion)
	fmt.Fprintf(out, "epoch       %s, %d partitions, since %s\n", st.Epoch.Epoch, st.Epoch.Partitions, st.Epoch.CreatedAt.UTC().Format(time.RFC3339))
	fmt.Fprintf(out, "safe head   %s of %s\n", st.SafeHead, st.Highest)
	if st.Blocker != nil {
		fmt.Fprintf(out, "held by     %s\n", st.Blocker)
	}
	for _, slot := range st.Slots {
		read := "nobody reads it"
		if slot.Active {
			read = "who reads it is behind"
		}
		fmt.Fprintf(out, "slot        %q keeps %.1f GB of write-ahead log, and %s: the disk fills until it moves or is dropped\n",
			slot.Name, float64(slot.Kept)/(1<<30), read)
	}
	if len(st.Consumers) == 0 {
		_, err := fmt.Fprintln(out, "consumers   none")
		return err
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	columns := []string{"CONSUMER", "VERSION", "SEGMENT", "KIND", "STATE", "APPLIED", "BEHIND", "OLDEST", "LEFT", "PARKED", "OWNER", "REASON"}
	if left == nil {
		columns = slices.Delete(columns, 8, 9)
	}
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	var parked int64
	for _, c := range st.Consumers {
		behind, oldest, owner := fmt.Sprintf("%d positions", c.Positions), "-", "-"
		if c.Foreign() {
			behind = "-"
		}
		if !c.Oldest.IsZero() {
			oldest = now.Sub(c.Oldest).Round(time.Millisecond).String()
		}
		if c.Owner != "" {
			owner = c.Owner
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t", c.Consumer, c.Version, c.Segment, c.Kind, c.State, c.Applied, behind, oldest)
		if left != nil {
			fmt.Fprintf(w, "%s\t", cmp.Or(left[placeOf(c)], "-"))
		}
		fmt.Fprintf(w, "%d\t%s\t%s\n", c.Parked, owner, c.Reason)
		parked += c.Parked
	}
	if err := w.Flush(); err != nil || parked == 0 {
		return err
	}
	are := "are"
	if parked == 1 {
		are = "is"
	}
	_, err := fmt.Fprintf(out, "\n%s %s set aside: see daybook deadletter status\n", counted(parked, "sequence"), are)
	return err
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
