// Checkout places orders and lets a saga bring each to its end: stock reserved, payment taken, parcel handed over, customer
// told; or all of it undone. It prints how they ended, adds up every item and every cent, and explains one order that was
// not to be.
//
//	go run ./examples/checkout                     2,000 orders, made up
//	go run ./examples/checkout -orders 100 -seed 7
//	go run ./examples/checkout orders.csv          or a .json file
//	go run ./examples/checkout -chaos              while it runs, workers are killed at random
//	go run ./examples/checkout -broker             commands take the way over relay and broker too
//
// The payment provider is a service of its own, over HTTP: it declines, does not answer, answers late and twice. The sagas
// follow what is published: a relay sends every event to a Watermill channel, and they take it from there.
//
// It is made of small packages, each to be read by itself:
//
//	order, stock, payment, shipping    the aggregates
//	checkout                           the saga
//	shop                               carries out its commands, and receives webhooks
//	provider                           the payment provider
//	basket                             the orders that are placed
//	audit                              adds everything up
//
// This package puts them together.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/daybook-go/daybook/examples/checkout/basket"
	"github.com/daybook-go/daybook/examples/checkout/order"
)

func main() {
	p := program{out: os.Stdout, notes: os.Stderr, executable: os.Executable}
	os.Exit(p.run(context.Background(), os.Args[1:]))
}

// program is one call of the command line.
type program struct {
	out   io.Writer // results
	notes io.Writer // progress, notes and errors
	// executable is the file of this program, for workers that are processes of their own.
	executable func() (string, error)
	// env is added to theirs.
	env []string
	// clientPatience, if not zero, is another one than usual: for tests on machines that are busy.
	clientPatience time.Duration
}

// settings are what the command line says.
type settings struct {
	orders  int
	seed    int64
	chaos   bool
	broker  bool
	verbose bool
	file    string
}

const usage = `usage: checkout [-orders N] [-seed N] [-chaos] [-broker] [-v] [FILE]

It places N orders, or those of a .csv or .json file, and lets each be brought to
its end. State lives in the PostgreSQL database that DAYBOOK_DATABASE_URL names,
else in that of a server which is started for you and kept; every run goes on
where the last has ended.
`

// worker, as the first argument, makes the program one of the processes that -chaos kills.
const workCommand = "work"

// run returns the exit code: 0; 1 with the error in the notes; 2 when the command line is wrong.
func (p *program) run(ctx context.Context, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(args) == 2 && args[0] == workCommand {
		err = p.work(ctx, args[1])
	} else {
		var s settings
		if s, err = p.parse(args); errors.Is(err, flag.ErrHelp) {
			return 0
		} else if err != nil {
			fmt.Fprintf(p.notes, "checkout: %v\n\n%s", err, usage)
			return 2
		}
		err = p.checkout(ctx, s)
	}
	if err != nil && ctx.Err() != nil {
		fmt.Fprintln(p.notes, "checkout: interrupted; the next run goes on with what is under way")
		return 1
	}
	if err != nil {
		fmt.Fprintln(p.notes, "checkout:", err)
		return 1
	}
	return 0
}

func (p *program) parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("checkout", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&s.orders, "orders", 2000, "how many `orders` are made up")
	flags.Int64Var(&s.seed, "seed", 1, "what chance begins with: the same `number` gives the same orders, and the same fates")
	flags.BoolVar(&s.chaos, "chaos", false, "let the workers be processes, and kill them at random")
	flags.BoolVar(&s.broker, "broker", false, "let commands be published, and taken from the broker, as events are")
	flags.BoolVar(&s.verbose, "v", false, "print what the workers log")
	err = flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(p.out, "%s\n", usage)
		flags.SetOutput(p.out)
		flags.PrintDefaults()
	}
	switch {
	case err != nil:
	case flags.NArg() > 1:
		err = fmt.Errorf("name one file, not %d", flags.NArg())
	case s.orders < 1 || s.orders > 100_000:
		err = fmt.Errorf("-orders %d: place between 1 and 100,000", s.orders)
	}
	s.file = flags.Arg(0)
	return s, err
}

// places are the orders to be placed.
func (s settings) places() ([]order.Place, error) {
	if s.file == "" {
		return basket.Generate(s.orders, uint64(s.seed)), nil
	}
	return basket.Read(s.file)
}

// patience is how long nothing may happen to orders that are under way before that is an error.
const patience = 2 * time.Minute
