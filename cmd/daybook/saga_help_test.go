package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// sagaVerbs are the commands below saga.
func sagaVerbs(t *testing.T) []*cobra.Command {
	t.Helper()
	cmd, _, err := command(&settings{}).Find([]string{"saga"})
	if err != nil {
		t.Fatal(err)
	}
	var verbs []*cobra.Command
	for _, c := range cmd.Commands() {
		if c.Name() != "help" {
			verbs = append(verbs, c)
		}
	}
	return verbs
}

// The help of each command says what it does, its flags, its exit codes, and shows how it is called; what it shows is right.
func TestHelpOfSagaCommands(t *testing.T) {
	t.Parallel()
	verbs := sagaVerbs(t)
	if len(verbs) != 13 {
		t.Errorf("%d commands", len(verbs))
	}
	for _, verb := range verbs {
		for _, flag := range []string{"-h", "--help"} {
			var out bytes.Buffer
			cmd := command(&settings{})
			cmd.SetOut(&out)
			cmd.SetArgs([]string{"saga", verb.Name(), flag})
			if err := cmd.Execute(); err != nil {
				t.Errorf("%s %s: %v", verb.Name(), flag, err)
			}
			for _, want := range []string{"Exit codes: 0 ", "1 failed", "Examples:\n  daybook saga " + verb.Name(), "Usage:\n  daybook saga " + verb.Name() + " "} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the help of %s lacks %q:\n%s", verb.Name(), want, out.String())
				}
			}
			verb.Flags().VisitAll(func(f *pflag.Flag) {
				if !strings.Contains(out.String(), "--"+f.Name) || len(f.Usage) < 8 {
					t.Errorf("the help of %s lacks --%s", verb.Name(), f.Name)
				}
			})
		}
		if len(strings.Split(verb.Long, "\n\n")[0]) < len(verb.Short)/2 {
			t.Errorf("%s says little of itself: %s", verb.Name(), verb.Long)
		}
		for line := range strings.Lines(verb.Example) {
			words := words(strings.TrimSpace(line))
			found, rest, err := command(&settings{}).Find(words[1:])
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err == nil {
				err = found.ValidateArgs(found.Flags().Args())
			}
			if err != nil || found.Name() != verb.Name() {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
}

// words are those of a line in a shell.
func words(line string) (all []string) {
	quote := rune(0)
	word := ""
	for _, r := range line + " " {
		switch {
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case r == ' ' && quote == 0:
			if word != "" {
				all = append(all, word)
			}
			word = ""
		default:
			word += string(r)
		}
	}
	return all
}

// What is typed wrong is named, with what was meant perhaps, and where it says what there is.
func TestWhatSagaCommandsDoNotKnow(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"wyh checkout 812":                           "unknown command \"wyh\" for \"daybook saga\"; is it why? see `daybook saga --help`",
		"x\x1b":                                      "unknown command \"x�\" for \"daybook saga\"; see `daybook saga --help`",
		"why":                                        "SAGA is missing: daybook saga why takes SAGA KEY; see `daybook saga why --help`",
		"why checkout":                               "KEY is missing: daybook saga why takes SAGA KEY; see `daybook saga why --help`",
		"why checkout 812 813":                       "\"813\" is one too many: daybook saga why takes SAGA KEY; see `daybook saga why --help`",
		"retry":                                      "SAGA is missing: daybook saga retry takes SAGA [KEY…]; see `daybook saga retry --help`",
		"retry checkout 812 --stp pay":               "unknown flag: --stp; is it --step? see `daybook saga retry --help`",
		"retry checkout 812 --nothing":               "unknown flag: --nothing; see `daybook saga retry --help`",
		"retry checkout 812 -x":                      "unknown shorthand flag: 'x' in -x; see `daybook saga retry --help`",
		"retry checkout 812 --rate fast":             "invalid argument \"fast\" for \"--rate\" flag: strconv.ParseFloat: parsing \"fast\": invalid syntax; see `daybook saga retry --help`",
		"list checkout --older 5":                    "invalid argument \"5\" for \"--older\" flag: time: missing unit in duration \"5\"; see `daybook saga list --help`",
		"list checkout --overdue 0s":                 "--overdue 0s: must be above 0",
		"why checkout 812 --overdue -1h":             "--overdue -1h0m0s: must be above 0",
		"plans a b":                                  "\"b\" is one too many: daybook saga plans takes [PLAN]; see `daybook saga plans --help`",
		"cancel-plan --reason x":                     "PLAN is missing: daybook saga cancel-plan takes PLAN; see `daybook saga cancel-plan --help`",
		"pause checkout 812 --reason x --wait --bak": "unknown flag: --bak; see `daybook saga pause --help`",
	} {
		_, err := run(t, append(append([]string{"saga"}, strings.Fields(line)...), "--database", "postgres://127.0.0.1:1/none")...)
		if err == nil || err.Error() != want || exitCode(err) != 1 {
			t.Errorf("%s: %v (exit %d), want %s", line, err, exitCode(err), want)
		}
	}
	for _, args := range [][]string{{"why", "", "812"}, {"why", "checkout", ""}, {"retry", "checkout", "812", "", "--reason", "x"}} {
		if _, err := run(t, append([]string{"saga"}, args...)...); err == nil || !strings.Contains(err.Error(), " is empty; see `daybook saga ") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
