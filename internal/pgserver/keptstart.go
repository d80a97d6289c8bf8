package pgserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// start runs the kept server through pg_ctl, which detaches it and waits until
// it is ready. A port that somebody else has taken meanwhile is replaced.
func (k *kept) start(ctx context.Context, bin Binaries, state keptState) (keptState, error) {
	deadline := time.Now().Add(startPatience)
	for {
		if !portIsFree(state.Port) {
			port, err := freePort()
			if err != nil {
				return state, err
			}
			state.Port = port
			if err := k.writeState(state); err != nil {
				return state, err
			}
		}
		err := k.pgctl(ctx, bin, state)
		if err == nil {
			return state, nil
		}
		text, _ := os.ReadFile(k.log()) // an unreadable log is an empty one
		early := &earlyExitError{how: err.Error(), log: string(text)}
		if !early.leftovers() || time.Now().After(deadline) || !pause(ctx, 50*time.Millisecond) {
			return state, early
		}
	}
}

func (k *kept) pgctl(ctx context.Context, bin Binaries, state keptState) error {
	if err := os.Remove(k.log()); err != nil && !os.IsNotExist(err) {
		return err
	}
	var options []string
	for _, arg := range settings(state.Port, true, nil) {
		options = append(options, shellQuote(arg)) // pg_ctl gives them to a shell
	}
	cmd := exec.CommandContext(ctx, bin.path("pg_ctl"), "start", "-w", "-s",
		"-t", fmt.Sprint(int(startPatience.Seconds())),
		"-D", k.data(), "-l", k.log(), "-o", strings.Join(options, " "))
	k.as.detach(cmd)
	cmd.Dir, cmd.Env = k.home(), cleanEnv(k.home())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_ctl start: %w: %s", err, tail(out))
	}
	return nil
}

func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
