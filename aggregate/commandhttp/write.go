package commandhttp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// writeJSON answers with a body, or returns an error before anything is written.
func writeJSON(w http.ResponseWriter, status int, body any) error {
	text, err := encode(body)
	if err != nil {
		return err
	}
	writeBody(w, status, text)
	return nil
}

func encode(body any) ([]byte, error) {
	text, err := json.Marshal(body)
	return append(text, '\n'), err
}

// writeBody answers with JSON; a body of none is none.
func writeBody(w http.ResponseWriter, status int, text []byte) {
	if len(text) == 0 {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // whoever asked has gone
}

// retryAfter sets the header, in whole seconds, rounded up.
func retryAfter(h http.Header, d time.Duration) {
	if d > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10))
	}
}
