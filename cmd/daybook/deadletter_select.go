package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/daybook-go/daybook/outbox/deadletter"
)

// selector are the flags that select letters.
type selector struct {
	consumer, topic, sequence, group, typ, state, kind, since, until string
	version                                                          int
}

func (s *selector) groupFlags(cmd *cobra.Command) {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return noneEmpty(cmd) }
	f := cmd.Flags()
	f.StringVar(&s.consumer, "consumer", "", "of this consumer")
	f.IntVar(&s.version, "version", 0, "of this version of the consumer")
	f.StringVar(&s.group, "group", "", "of this group, by its fingerprint (see daybook deadletter groups)")
	f.StringVar(&s.since, "since", "", "failed last at this time or later: 2006-01-02T15:04:05Z, or 2h for two hours ago")
	f.StringVar(&s.until, "until", "", "failed last before this time")
}

// noneEmpty refuses a flag that is there without a value, as a script gives it whose variable is not set: it would select
// everything else as well.
func noneEmpty(cmd *cobra.Command) error {
	for _, name := range []string{"consumer", "group", "since", "until", "topic", "sequence", "type", "kind", "state", "reason-is", "step"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return fmt.Errorf("--%s is empty: give it a value, or leave it out", name)
		}
	}
	return nil
}

func (s *selector) flags(cmd *cobra.Command, closed bool) {
	s.groupFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.topic, "topic", "", "of this topic; only relays and inboxes have topics")
	f.StringVar(&s.sequence, "sequence", "", "of this sequence, which is a partition key; needs --consumer")
	f.StringVar(&s.typ, "type", "", "messages of this type")
	f.StringVar(&s.kind, "kind", "", "whose last failure was transient, or permanent")
	usage := "parked (the default) or retrying, or open for both"
	if closed {
		usage = "open (the default), parked, retrying, closed, applied, discarded, behind or \"taken over\""
	}
	f.StringVar(&s.state, "state", "", usage)
}

func (s *selector) filter(now time.Time) (deadletter.Filter, error) {
	f := deadletter.Filter{
		Consumer: s.consumer, Version: s.version, Topic: s.topic, Sequence: s.sequence, Fingerprint: s.group,
		Type: s.typ, State: deadletter.State(s.state), Kind: s.kind,
	}
	var err, err2 error
	f.Since, err = parseTime("--since", s.since, now)
	f.Until, err2 = parseTime("--until", s.until, now)
	return f, errors.Join(err, err2)
}

func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%s %q: give a time like 2006-01-02T15:04:05Z, or an age like 2h30m", flag, text)
	}
	return t, nil
}

// selection is the letter that is named, or what the flags say.
func (s *selector) selection(args []string, now time.Time) (deadletter.Selection, error) {
	f, err := s.filter(now)
	if err != nil {
		return deadletter.Selection{}, err
	}
	if len(args) == 1 {
		if *s != (selector{}) {
			return deadletter.Selection{}, errors.New("name a letter, or select with flags, not both")
		}
		id, err := parseID("letter", args[0])
		return deadletter.One(id), err
	}
	switch {
	case *s == (selector{}):
		return deadletter.Selection{}, &exitError{exitRefused, errors.New("nothing is selected: name a letter, or give --group, or --consumer with --sequence or others")}
	case f == (deadletter.Filter{Consumer: f.Consumer, Version: f.Version, Topic: f.Topic, Sequence: f.Sequence}) && f.Sequence != "":
		return deadletter.Sequence(f.Consumer, f.Version, f.Topic, f.Sequence), nil
	}
	return deadletter.Matching(f), nil
}

// action are the flags of what changes letters.
type action struct {
	actor, reason string
	yes, dryRun   bool
}

func (a *action) flags(cmd *cobra.Command, needed bool) {
	usage := "why; it is kept with the letters"
	if needed {
		usage += " (required)"
	}
	cmd.Flags().StringVar(&a.reason, "reason", "", usage)
	cmd.Flags().StringVar(&a.actor, "actor", "", "who does it (default user@host)")
}

func (a *action) wideFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask when more than one letter is selected")
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "say what is selected, and change nothing")
}

func (a *action) options() deadletter.Options {
	actor := a.actor
	if actor == "" {
		actor = whoami()
	}
	return deadletter.Options{Actor: actor, Reason: a.reason}
}

func whoami() string {
	name := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// errNotConfirmed: nothing was changed.
var errNotConfirmed = errors.New("not confirmed, nothing was changed: answer y, or give --yes")

// confirm asks before something is done to more than one letter, and returns how many were agreed to: 0 when nobody was
// asked. Without somebody to ask it refuses.
func (s *settings) confirm(ctx context.Context, verb string, p deadletter.Preview, yes bool) (int, error) {
	if p.Letters <= 1 || yes {
		return 0, nil
	}
	return p.Letters, s.ask(ctx, fmt.Sprintf("%s %d letters of %s v%d, with %s queued behind them?", capital(verb), p.Letters, clean(p.Consumer, 200), p.Version, counted(p.Queued, "message")),
		fmt.Sprintf("%d letters are selected", p.Letters), verb)
}

// ask returns nil when somebody answers yes. selected says what there is to agree to, for who cannot be asked.
func (s *settings) ask(ctx context.Context, question, selected, verb string) error {
	if s.terminal == nil || !s.terminal() {
		return &exitError{exitRefused, fmt.Errorf("%s, and there is no terminal to ask: give --yes to %s them all", selected, verb)}
	}
	fmt.Fprintf(s.errOut, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // a terminal cannot be told to give up
		text, _ := bufio.NewReader(s.in).ReadString('\n') // what ends without an answer is no
		answer <- text
	}()
	select {
	case <-ctx.Done():
	case text := <-answer:
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "y", "yes":
			return nil
		}
	}
	return &exitError{exitRefused, errNotConfirmed}
}

func capital(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// onTerminal reports whether somebody can be asked.
func onTerminal() bool { return isTerminal(os.Stdin) }

// isTerminal tells a terminal from other devices: cron and systemd start programs with the null device.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// counted is a number of things.
func counted[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// idOrNone is the text of an id, or a dash.
func idOrNone(id uuid.UUID) string {
	if id == uuid.Nil {
		return "-"
	}
	return id.String()
}
