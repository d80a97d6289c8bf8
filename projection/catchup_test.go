package projection

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestCatchUpStopsExactlyAtTheToken(t *testing.T) {
	t.Parallel()
	view := counts("catchup")
	w := newWorld(t, view)
	first := w.append("a", added{1}, added{2})
	last := w.append("a", added{10})
	r := w.runner(Config{}, view)
	for _, step := range []struct {
		name string
		to   func() error
		want int64
	}{
		{"first token", func() error { return r.CatchUp(t.Context(), first) }, 3},
		{"again: nothing to do", func() error { return r.CatchUp(t.Context(), first) }, 3},
		{"last token", func() error { return r.CatchUp(t.Context(), last) }, 13},
		{"an older token again", func() error { return r.CatchUp(t.Context(), first) }, 13},
	} {
		if err := step.to(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		got, err := view.Get(t.Context(), w.pool, "a")
		if err != nil || got.Sum != step.want {
			t.Errorf("%s: sum %d (%v), want %d", step.name, got.Sum, err, step.want)
		}
	}
}

func TestCatchUpSaysWhyItCannotBegin(t *testing.T) {
	t.Parallel()
	view := counts("catchup_missing")
	w := newWorld(t)
	token := w.append("a", added{1})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var missing *NotInstalledError
	if err := w.runner(Config{}, view).CatchUp(ctx, token); !errors.As(err, &missing) {
		t.Errorf("CatchUp without Install: %v, want a *NotInstalledError", err)
	}
	ended, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if err := w.runner(Config{}, view).CatchUp(ended, token); err == nil {
		t.Error("CatchUp with an ended context returned nil before the token was reached")
	}
}
