package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
)

// readyTime is how long the database may take to answer.
const readyTime = 2 * time.Second

// readyAge is how old an answer may be. Nobody is sent away who asks, so the database must not be asked each time.
const readyAge = time.Second

// readiness remembers the last answer.
type readiness struct {
	mu     sync.Mutex
	answer eventstore.Health
	at     time.Time
}

// ask returns an answer that is not too old, and whether it is another one than before. Callers wait for each other.
func (r *readiness) ask(ctx context.Context, store Store) (h eventstore.Health, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < readyAge {
		return r.answer, false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTime)
	defer cancel()
	before := r.answer.State
	r.answer, r.at = store.Health(ctx), time.Now()
	return r.answer, r.answer.State != before
}

type healthAnswer struct {
	Ready bool   `json:"ready"`
	State string `json:"state"`
}

func (a *API) alive(w http.ResponseWriter, _ *http.Request) error {
	return commandhttp.WriteJSON(w, http.StatusOK, healthAnswer{Ready: true, State: "alive"})
}

// isReady asks the store. The reason, which may name servers and roles, is for the log.
func (a *API) isReady(w http.ResponseWriter, r *http.Request) error {
	h, changed := a.ready.ask(r.Context(), a.store)
	status, level, text := http.StatusOK, slog.LevelInfo, "ready"
	if !h.Ready {
		status, level, text = http.StatusServiceUnavailable, slog.LevelWarn, "not ready"
	}
	if changed {
		a.log.Log(r.Context(), level, text, "state", h.State, "reason", h.Reason)
	}
	return commandhttp.WriteJSON(w, status, healthAnswer{Ready: h.Ready, State: h.State})
}
