package projection

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestViewFollowsTheLog(t *testing.T) {
	t.Parallel()
	v := counts("counts")
	w := newWorld(t, v)
	w.append("a", added{1}, added{2})
	w.append("b", added{10})
	token := w.append("a", removed{1})
	stop := w.start(w.runner(Config{}, v))
	row, err := v.Get(t.Context(), w.pool, "a", AtLeast(token), Within(patience))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(count{Sum: 2, Events: 3, Last: 3}, row); diff != "" {
		t.Error(diff)
	}
	w.wait(w.append("b", added{5}), v)
	if diff := cmp.Diff(map[string]count{"a": {2, 3, 3}, "b": {15, 2, 2}}, rowsOf(w, v)); diff != "" {
		t.Error(diff)
	}
	if _, err := v.Get(t.Context(), w.pool, "nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing row gives %v", err)
	}
	stop()
	if got := ask[int64](w, "SELECT sum(\"sum\")::bigint FROM readmodels.counts"); got != 17 {
		t.Errorf("the view by the plain name says %d", got)
	}
	_ = context.Background
}
