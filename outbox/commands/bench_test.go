package commands

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/internal/livetest"
)

// One command after the other, from its storing to its end as who watches it sees it.
func BenchmarkLatency(b *testing.B) {
	w := newWorld(b)
	w.run(Config{})
	w.ends(w.send(add{"warm", 1}), bus.OperationDone)
	for n := 0; b.Loop(); n++ {
		w.ends(w.send(add{fmt.Sprint(n % 100), int64(n + 1)}), bus.OperationDone)
	}
}

// A backlog of commands of 100 aggregates; an operation of the benchmark is a command.
func BenchmarkBacklog(b *testing.B) {
	w := newWorld(b)
	const size = 1000
	sent := 0
	for b.Loop() {
		b.StopTimer()
		w.inTx(func(tx pgx.Tx) error {
			for range size {
				sent++
				c, err := w.bus.Encode(add{fmt.Sprint(sent % 100), int64(sent)})
				if err != nil {
					return err
				}
				if err := Enqueue(context.Background(), tx, c); err != nil {
					return err
				}
			}
			return nil
		})
		d := w.dispatcher(nil, Config{})
		b.StartTimer()
		stop := w.start(d)
		livetest.Eventually(b, "all end", func() bool { return ask[int](w, "SELECT count(*) FROM daybook.operations") == sent })
		b.StopTimer()
		if err := stop(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "commands/s")
}
