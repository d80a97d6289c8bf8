package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/daybook-go/daybook/aggregate/commandhttp"
)

// readyTime is how long the database may take to answer.
const readyTime = 2 * time.Second

// readiness remembers the last answer, so that only changes are logged.
type readiness struct {
	mu    sync.Mutex
	state string
}

// changed reports whether a state differs from the last one.
func (r *readiness) changed(state string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.state
	r.state = state
	return before != state
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
	ctx, cancel := context.WithTimeout(r.Context(), readyTime)
	defer cancel()
	h := a.store.Health(ctx)
	status, level, text := http.StatusOK, slog.LevelInfo, "ready"
	if !h.Ready {
		status, level, text = http.StatusServiceUnavailable, slog.LevelWarn, "not ready"
	}
	if a.ready.changed(h.State) {
		a.log.Log(r.Context(), level, text, "state", h.State, "reason", h.Reason)
	}
	return commandhttp.WriteJSON(w, status, healthAnswer{Ready: h.Ready, State: h.State})
}
