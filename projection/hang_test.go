package projection

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
)

// R-LB06: a handler, and a fold, that hang keep neither the others nor other projections from going on. Health names them.
func TestHangs(t *testing.T) {
	t.Parallel()
	let := make(chan struct{})
	defer sync.OnceFunc(func() { close(let) })()
	p := logged("hangs", func(_ context.Context, _ pgx.Tx, e Event[added]) error {
		if e.Payload.N == 666 {
			<-let
		}
		return nil
	})
	v := counts("hangs_too")
	v.Folds = append(v.Folds, On(func(e Event[added]) string { return e.Stream.ID }, func(s count, e Event[added]) count {
		if e.Payload.N == 666 {
			<-let
		}
		return s
	}))
	w := newWorld(t, p, v)
	var last eventstore.Token
	for i := range 20 {
		if i == 10 {
			w.append("bad", added{666})
		}
		last = w.append("s", added{int64(i)})
	}
	r := w.runner(Config{Timeout: 200 * time.Millisecond}, p, v)
	w.start(r)
	w.wait(last, p, v)
	if got := len(values(w, "hangs")); got != 20 {
		t.Errorf("%d of 20 were applied", got)
	}
	livetest.Eventually(t, "health tells of both", func() bool {
		h := r.Health(t.Context())
		return h.Ready && strings.Contains(h.Reason, "handlers ignore the end of their context and still run") &&
			strings.Contains(h.Parts[0].Reason, `"test.added" at position`) && strings.Contains(h.Parts[1].Reason, `"test.added" at position`)
	})
}
