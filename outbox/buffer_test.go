package outbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/internal/testscale"
)

// A producer that could send 50 in each tick, a consumer that does 20, for 10 ticks.
func TestBufferCredit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		credit           int
		sent, peak, left int
	}{
		{"credit 40", 40, 220, 40, 20},
		{"no bound", 1000, 500, 320, 300},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBuffer[int](c.credit)
			r := b.reader()
			batch := make([]int, 20)
			sent, peak, done := 0, 0, 0
			for range 10 {
				for range 50 {
					if !b.tryPut(sent) {
						break
					}
					sent++
				}
				peak = max(peak, b.held())
				n, overrun := r.take(batch)
				if overrun {
					t.Fatal("the only reader was overrun")
				}
				for i, got := range batch[:n] {
					if got != done+i {
						t.Fatalf("entry %d is %d", done+i, got)
					}
				}
				done += n
			}
			if left := b.held(); sent != c.sent || peak != c.peak || left != c.left || done != 200 {
				t.Errorf("sent %d, peak %d, left %d, done %d; want sent %d, peak %d, left %d, done 200", sent, peak, left, done, c.sent, c.peak, c.left)
			}
		})
	}
}

func TestBufferHoldsTheReceiverBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer[int](2)
		r := b.reader()
		put := make(chan error)
		go func() {
			for i := range 3 {
				put <- b.put(t.Context(), i)
			}
		}()
		<-put
		<-put
		synctest.Wait()
		select {
		case err := <-put:
			t.Fatalf("a full buffer took an entry: %v", err)
		default:
		}
		if n, overrun := r.take(make([]int, 1)); n != 1 || overrun {
			t.Fatalf("took %d, overrun %v", n, overrun)
		}
		if err := <-put; err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.put(ctx, 9); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("put into a full buffer until its context ends: %v", err)
		}
		batch := make([]int, 9)
		if n, _ := r.take(batch); !slices.Equal(batch[:n], []int{1, 2}) {
			t.Errorf("took %v, want [1 2]: what was given up is not in it", batch[:n])
		}
	})
}

// The reader that keeps up is never held by one that stands still, and gets its entries in batches.
func TestBufferOverrunsTheSlowReader(t *testing.T) {
	t.Parallel()
	b := newBuffer[int](8)
	fast, slow := b.reader(), b.reader()
	batch := make([]int, 8)
	if !b.tryPut(0) {
		t.Fatal("an empty buffer is full")
	}
	if n, _ := slow.take(batch); n != 1 {
		t.Fatal("no entry")
	}
	got, batches := []int(nil), 0
	for i := 1; i < 80; {
		for i < 80 && b.tryPut(i) {
			i++
		}
		n, overrun := fast.take(batch)
		if n == 0 || overrun {
			t.Fatalf("after %v the fast reader got %d, overrun %v", got, n, overrun)
		}
		got, batches = append(got, batch[:n]...), batches+1
	}
	for i, n := range got {
		if n != i {
			t.Fatalf("the fast reader got %v", got)
		}
	}
	if len(got) != 80 || batches > 41 {
		t.Errorf("the fast reader got %d entries in %d batches", len(got), batches)
	}
	n, overrun := slow.take(batch)
	if want := 80 - b.held(); !overrun || n == 0 || batch[0] != 80-n || n > 8 {
		t.Errorf("the slow reader got %v, overrun %v, want the newest, from %d on", batch[:n], overrun, want)
	}
	if n, overrun := slow.take(batch); n != 0 || overrun {
		t.Errorf("then %d, overrun %v: it is told once", n, overrun)
	}
	if b.held() != 0 {
		t.Errorf("%d entries are held that everybody had", b.held())
	}
}

func TestBufferReadersComeAndGo(t *testing.T) {
	t.Parallel()
	b := newBuffer[int](4)
	for i := range 10 { // nobody reads: the oldest go, nobody waits
		if !b.tryPut(i) {
			t.Fatal("a buffer without readers was full")
		}
	}
	batch := make([]int, 9)
	first, second := b.reader(), b.reader()
	if n, overrun := first.take(batch); overrun || !slices.Equal(batch[:n], []int{6, 7, 8, 9}) {
		t.Errorf("a new reader got %v, overrun %v", batch[:n], overrun)
	}
	if b.held() != 4 {
		t.Errorf("%d held, while the second reader has seen none", b.held())
	}
	second.leave()
	second.leave()
	if n, _ := second.take(batch); b.held() != 0 || n != 0 {
		t.Errorf("%d held, %d read after the second reader left", b.held(), n)
	}
	for i := range 4 {
		b.tryPut(i)
	}
	if b.tryPut(4) {
		t.Error("a full buffer took an entry")
	}
	first.leave()
	if !b.tryPut(4) || b.held() != 4 {
		t.Error("the last reader left, and the buffer still waits for it")
	}
}

// A receiver that waits goes on when the reader that holds it leaves, and when a new one has read everything.
func TestBufferWakesTheReceiver(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(b *buffer[int], slow *reader[int]){
		"the reader leaves":  func(_ *buffer[int], slow *reader[int]) { slow.leave() },
		"it reads":           func(_ *buffer[int], slow *reader[int]) { slow.take(make([]int, 1)) },
		"another reads all":  func(b *buffer[int], _ *reader[int]) { b.reader().take(make([]int, 9)) },
		"the buffer closes":  func(b *buffer[int], _ *reader[int]) { b.close() },
		"the buffer closes2": func(b *buffer[int], _ *reader[int]) { b.close(); b.close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBuffer[int](1)
				slow := b.reader()
				b.tryPut(1)
				put := make(chan error, 1)
				go func() { put <- b.put(t.Context(), 2) }()
				synctest.Wait()
				act(b, slow)
				if err := <-put; err != nil && !errors.Is(err, errBufferClosed) {
					t.Error(err)
				}
			})
		})
	}
}

func TestBufferClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer[int](2)
		r, idle := b.reader(), b.reader()
		b.tryPut(7)
		idle.take(make([]int, 1))
		ended := make(chan error, 1)
		go func() {
			_, _, err := idle.next(t.Context(), make([]int, 1))
			ended <- err
		}()
		synctest.Wait()
		b.close()
		if err := <-ended; !errors.Is(err, errBufferClosed) {
			t.Errorf("a reader that waits: %v", err)
		}
		if err := b.put(t.Context(), 8); !errors.Is(err, errBufferClosed) || b.tryPut(8) {
			t.Errorf("put into a closed buffer: %v", err)
		}
		batch := make([]int, 2)
		if n, _, err := r.next(t.Context(), batch); err != nil || n != 1 || batch[0] != 7 {
			t.Errorf("what was held is still read: %d, %v", n, err)
		}
		if _, _, err := r.next(t.Context(), batch); !errors.Is(err, errBufferClosed) {
			t.Errorf("then: %v", err)
		}
		r = newBuffer[int](2).reader()
		r.leave()
		if _, _, err := r.next(t.Context(), batch); !errors.Is(err, errBufferClosed) {
			t.Errorf("a reader that left: %v", err)
		}
	})
}

func TestBufferNextEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer[int](1)
		r := b.reader()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := r.next(ctx, make([]int, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an empty buffer: %v", err)
		}
		b.tryPut(3)
		if n, _, err := r.next(ctx, make([]int, 1)); n != 1 || err != nil {
			t.Errorf("what is there is given even now: %d, %v", n, err)
		}
	})
}

// Many entries pass, and only what is unread stays in memory.
func TestBufferRetainsNothing(t *testing.T) {
	t.Parallel()
	b := newBuffer[*int](64)
	r := b.reader()
	batch := make([]*int, 50)
	most, all := 0, testscale.N(1_000_000)
	for sent, read := 0, 0; read < all; {
		for sent < all && b.tryPut(new(int)) {
			sent++
		}
		n, _ := r.take(batch)
		read += n
		retained := 0
		for _, p := range b.ring {
			if p != nil {
				retained++
			}
		}
		if retained != b.held() || len(b.ring) != 64 {
			t.Fatalf("%d of %d places keep an entry, %d are held", retained, len(b.ring), b.held())
		}
		most = max(most, retained)
	}
	if most != 14 || b.held() != 0 {
		t.Errorf("at most %d were kept after a read, want 14; %d in the end", most, b.held())
	}
}

// Whatever is done in whatever order: a reader gets a rising run of the entries, and is told of every gap.
func TestBufferProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		credit := rapid.IntRange(1, 9).Draw(t, "credit")
		b := newBuffer[int](credit)
		type place struct {
			*reader[int]
			next int
		}
		var readers []*place
		sent := 0
		choose := func() *place { return readers[rapid.IntRange(0, len(readers)-1).Draw(t, "reader")] }
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				caughtUp := slices.ContainsFunc(readers, func(p *place) bool { return p.next == sent })
				want := b.held() < credit || len(readers) == 0 || caughtUp
				if got := b.tryPut(sent); got != want {
					t.Fatalf("put is %v, want %v", got, want)
				} else if got {
					sent++
				}
			},
			"join": func(*rapid.T) {
				p := &place{reader: b.reader(), next: sent - b.held()}
				readers = append(readers, p)
			},
			"leave": func(t *rapid.T) {
				if len(readers) == 0 {
					return
				}
				p := choose()
				p.leave()
				readers = slices.DeleteFunc(readers, func(o *place) bool { return o == p })
			},
			"take": func(t *rapid.T) {
				if len(readers) == 0 {
					return
				}
				p := choose()
				batch := make([]int, rapid.IntRange(1, 5).Draw(t, "size"))
				n, overrun := p.take(batch)
				if n == 0 && p.next != sent {
					t.Fatalf("nothing, though %d of %d are read", p.next, sent)
				}
				if n > 0 && overrun != (batch[0] != p.next) {
					t.Fatalf("got %v after %d, overrun %v", batch[:n], p.next, overrun)
				}
				for i := range n {
					if i > 0 && batch[i] != batch[i-1]+1 {
						t.Fatalf("got %v", batch[:n])
					}
					p.next = batch[i] + 1
				}
			},
			"": func(t *rapid.T) {
				if b.held() > credit {
					t.Fatalf("%d held with credit %d", b.held(), credit)
				}
			},
		})
	})
}

// Readers of different speed, some of which come and go, and two receivers, for the race detector; nobody hangs.
func TestBufferConcurrent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b := newBuffer[int](16)
	var receivers, readers sync.WaitGroup
	const each = 20_000
	keeper := b.reader() // holds at the end what the last reader left
	for range 2 {
		receivers.Go(func() {
			for i := range each {
				if err := b.put(ctx, i); err != nil {
					t.Errorf("put %d: %v", i, err)
					return
				}
			}
		})
	}
	for size := 1; size <= 4; size++ {
		readers.Go(func() {
			batch := make([]int, size)
			random := rand.New(rand.NewPCG(1, uint64(size)))
			for r := b.reader(); ; {
				if _, _, err := r.next(ctx, batch); err != nil {
					if !errors.Is(err, errBufferClosed) {
						t.Error(err)
					}
					r.leave()
					return
				}
				if size > 2 && random.IntN(50) == 0 {
					r.leave()
					r = b.reader()
				}
			}
		})
	}
	readers.Go(func() {
		batch, got := make([]int, 16), 0
		for {
			n, _, err := keeper.next(ctx, batch)
			got += n
			if err != nil {
				if got == 0 {
					t.Error("a reader got nothing")
				}
				return
			}
		}
	})
	receivers.Wait()
	b.close()
	readers.Wait()
	if ctx.Err() != nil {
		t.Error("not within patience")
	}
}
