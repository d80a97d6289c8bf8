package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (d *dev) fuzzCommand() *cobra.Command {
	var each time.Duration
	cmd := &cobra.Command{
		Use:   "fuzz",
		Short: "Run every fuzz target for a while",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return d.fuzz(cmd.Context(), each) },
	}
	cmd.Flags().DurationVar(&each, "time", 10*time.Second, "how long each target runs")
	return cmd
}

func (d *dev) fuzz(ctx context.Context, each time.Duration) error {
	if each <= 0 {
		return fmt.Errorf("dev: fuzz: --time: %s is not above 0", each)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-list", "^Fuzz", "./...")
	cmd.Dir, cmd.Stderr = d.root, d.errOut
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("dev: fuzz: list targets: %w", err)
	}
	targets := fuzzTargets(string(out))
	if len(targets) == 0 {
		return errors.New("dev: fuzz: there are no targets")
	}
	var failed []string
	for _, t := range targets {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := d.command(ctx, ".", nil, "go", "test", "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+each.String(), t.pkg)
		if err != nil {
			failed = append(failed, t.name)
		}
	}
	if len(failed) > 0 {
		fmt.Fprintf(d.out, "fuzz: %d of %d targets failed: %s\n", len(failed), len(targets), strings.Join(failed, " "))
		return &exitError{1}
	}
	fmt.Fprintf(d.out, "fuzz: ok, %d targets\n", len(targets))
	return nil
}

type fuzzTarget struct{ pkg, name string }

// fuzzTargets reads what go test -list prints: the names, then a line with the
// package that they are of.
func fuzzTargets(list string) []fuzzTarget {
	var targets []fuzzTarget
	var names []string
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 1 && strings.HasPrefix(fields[0], "Fuzz"):
			names = append(names, fields[0])
		case len(fields) >= 2 && fields[0] == "ok":
			for _, n := range names {
				targets = append(targets, fuzzTarget{fields[1], n})
			}
			names = nil
		}
	}
	return targets
}
