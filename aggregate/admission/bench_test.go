package admission_test

import (
	"testing"

	"github.com/daybook-go/daybook/aggregate/admission"
)

// What the door costs a request that is let in at once.
func BenchmarkAdmit(b *testing.B) {
	g := newGate(b, admission.Config{MinConcurrency: 64, MaxConcurrency: 64, Queue: 1 << 10})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if pass, err := g.Admit(b.Context(), normal("tenant")); err == nil {
				pass.Done(nil)
			}
		}
	})
}

// What it costs to send one away.
func BenchmarkSendAway(b *testing.B) {
	g := newGate(b, admission.Config{MinConcurrency: 1, MaxConcurrency: 1, Queue: 1})
	pass, err := g.Admit(b.Context(), normal(""))
	if err != nil {
		b.Fatal(err)
	}
	waiting := make(chan *admission.Pass)
	go func() {
		p, _ := g.Admit(b.Context(), of(admission.Critical))
		waiting <- p
	}()
	b.ReportAllocs()
	for b.Loop() {
		if p, err := g.Admit(b.Context(), of(admission.Bulk)); err == nil {
			p.Done(nil)
		}
	}
	pass.Done(nil)
	(<-waiting).Done(nil)
}
