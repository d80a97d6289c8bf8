package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/daybook-go/daybook/internal/pgserver"
)

const (
	// processes is how many workers there are under -chaos.
	processes = 2
	// lives is the longest time that a worker lives; the shortest is a tenth of it.
	lives = 12 * time.Second
)

// chaos has workers that are processes, and kills them.
type chaos struct {
	program     *program
	databaseURL string
	providerURL string
	seed        int64
	verbose     bool
	broker      bool

	mu     sync.Mutex
	killed int
}

// run keeps the workers going until ctx ends, and then ends them. Each is killed, as kill -9 does, when its time has come,
// and another takes its place.
func (c *chaos) run(ctx context.Context) error {
	path, err := c.program.executable()
	if err != nil {
		return err
	}
	errs := make([]error, processes)
	var all sync.WaitGroup
	for i := range processes {
		chance := rand.New(rand.NewPCG(uint64(c.seed), uint64(i)))
		all.Go(func() {
			longest := lives / 4 // at first, so that a short run has deaths too
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = c.life(ctx, path, lives/10+time.Duration(chance.Int64N(int64(longest-lives/10))))
				longest = lives
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// life runs a worker for some time.
func (c *chaos) life(ctx context.Context, path string, lasts time.Duration) error {
	cmd := exec.Command(path, workCommand, c.providerURL)
	cmd.Env = append(os.Environ(), pgserver.RunVariable+"="+c.databaseURL)
	cmd.Env = append(cmd.Env, c.program.env...)
	if c.verbose {
		cmd.Env = append(cmd.Env, verboseVariable+"=1")
	}
	if c.broker {
		cmd.Env = append(cmd.Env, brokerVariable+"=1")
	}
	cmd.Stderr = c.program.notes
	stdin, err := cmd.StdinPipe() // its end tells the worker to end, also when this process dies
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	end := time.NewTimer(lasts)
	defer end.Stop()
	select {
	case err := <-ended:
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("a worker has ended by itself: %w", err)
	case <-end.C:
		_ = cmd.Process.Kill() // it may have ended just now
		<-ended
		c.mu.Lock()
		c.killed++
		c.mu.Unlock()
		return nil
	case <-ctx.Done():
	}
	_ = stdin.Close() // the worker may have ended
	grace := time.NewTimer(shutdown)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		_ = cmd.Process.Kill()
		<-ended
	}
	return nil
}

// shutdown is how long a worker may take to end when it is told to.
const shutdown = 10 * time.Second

// kills is how many workers were killed.
func (c *chaos) kills() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}
