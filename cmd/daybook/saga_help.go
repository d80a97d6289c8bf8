package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The last lines of the help of each command.
const (
	sagaReads   = "\n\nExit codes: 0 done, 1 failed, 2 there is no such saga or instance."
	sagaDecides = "\n\nInstances are named by their keys, or selected by flags: --all-stuck, --reason-is, --state, --older. More than one is asked\n" +
		"for first. The command writes a plan, with who and why, which the managers of the saga carry out, an instance at a time; one\n" +
		"that cannot take it refuses, and nothing of it changes. With --wait it follows the plan.\n\n" +
		"Exit codes: 0 the plan is written, or with --wait carried out; 1 failed; 2 refused or nothing selected, nothing was changed;\n" +
		"3 with --wait: the plan was cancelled, or instances refused; 130 the wait was interrupted, and the plan goes on."
)

// sagaHelp sets what a command says of itself, and how it refuses what it does not know.
func sagaHelp(cmd *cobra.Command, long, example string) *cobra.Command {
	cmd.Long, cmd.Example = long, "  "+strings.ReplaceAll(example, "\n", "\n  ")
	cmd.SetFlagErrorFunc(unknownFlag)
	return cmd
}

// seeHelp is the end of an error of who has typed something else than a command takes.
func seeHelp(cmd *cobra.Command) string { return fmt.Sprintf("see `%s --help`", cmd.CommandPath()) }

// unknownFlag adds what was meant perhaps, and where it says which there are.
func unknownFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return fmt.Errorf("%w; %s", err, seeHelp(cmd))
	}
	name := unknown.GetSpecifiedName()
	var near []string
	nearest := 2
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		d := distance(name, f.Name)
		if strings.HasPrefix(f.Name, name) {
			d = 1
		}
		switch {
		case f.Hidden || len(name) < 2 || d > nearest:
		case d < nearest:
			near, nearest = nil, d
			fallthrough
		default:
			near = append(near, "--"+f.Name)
		}
	})
	if len(near) > 0 {
		return fmt.Errorf("%w; is it %s? %s", err, strings.Join(near, " or "), seeHelp(cmd))
	}
	return fmt.Errorf("%w; %s", err, seeHelp(cmd))
}

// distance is how many letters have to change to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0]++
		for j := range len(b) {
			here := row[j+1]
			step := last
			if a[i] != b[j] {
				step++
			}
			row[j+1] = min(step, row[j]+1, here+1)
			last = here
		}
	}
	return row[len(b)]
}

// sagaArgs takes so many arguments as are named: "SAGA KEY", or with "…" at the end any number more.
func sagaArgs(names string) cobra.PositionalArgs {
	want := strings.Fields(names)
	return func(cmd *cobra.Command, args []string) error {
		many := slices.ContainsFunc(want, func(w string) bool { return strings.HasSuffix(w, "…]") })
		least := slices.IndexFunc(want, func(w string) bool { return strings.HasPrefix(w, "[") })
		if least < 0 {
			least = len(want)
		}
		switch {
		case len(args) < least:
			return fmt.Errorf("%s is missing: %s takes %s; %s", want[len(args)], cmd.CommandPath(), names, seeHelp(cmd))
		case !many && len(args) > len(want):
			return fmt.Errorf("%q is one too many: %s takes %s; %s", clean(args[len(want)], 100), cmd.CommandPath(), names, seeHelp(cmd))
		}
		for n, arg := range args {
			if arg == "" {
				return fmt.Errorf("%s is empty; %s", strings.Trim(want[min(n, len(want)-1)], "[]…"), seeHelp(cmd))
			}
		}
		return nil
	}
}

// unknownVerb refuses what is no command of the group, and says what was meant perhaps.
func unknownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", clean(args[0], 100), cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("%s; is it %s? %s", text, strings.Join(near, " or "), seeHelp(cmd))
	}
	return fmt.Errorf("%s; %s", text, seeHelp(cmd))
}
