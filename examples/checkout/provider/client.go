package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrVoid: the charge was refunded before it came, and takes nothing.
var ErrVoid = errors.New("provider: the charge was refunded before it came")

// StatusError is an answer that is none.
type StatusError struct {
	Status int
	Reason string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("provider: answer %d: %s", e.Status, e.Reason)
}

// Answer says what the provider makes of a charge, by the end of the request.
type Answer string

// The answers.
const (
	Pending  Answer = "pending"  // a webhook tells when it was taken
	Declined Answer = "declined" // for good
	Busy     Answer = "busy"     // it was not tried
)

// Client asks a provider. It is safe for concurrent use.
type Client struct {
	url  string
	http *http.Client
}

// NewClient makes a client that waits for an answer as long as patience.
func NewClient(url string, patience time.Duration) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64 // the default of 2 makes a new connection for nearly every request
	return &Client{url: url, http: &http.Client{Timeout: patience, Transport: transport}}
}

// Close closes the connections that rest.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Charge asks for money under a key. An error that is neither ErrVoid nor a *StatusError below 500 says nothing about what
// became of it.
func (c *Client) Charge(ctx context.Context, key string, charge Charge) (Answer, error) {
	status, reason, err := c.post(ctx, "/charges", key, charge, nil)
	switch {
	case err != nil:
		return "", fmt.Errorf("provider: charge: %w", err)
	case status == http.StatusAccepted:
		return Pending, nil
	case status == http.StatusPaymentRequired:
		return Declined, nil
	case status == http.StatusServiceUnavailable:
		return Busy, nil
	case status == http.StatusConflict:
		return "", ErrVoid
	}
	return "", &StatusError{Status: status, Reason: reason}
}

// Refund gives back what was taken under the key of a charge, if anything was, and keeps it from taking anything later.
func (c *Client) Refund(ctx context.Context, key, charge string) (Refund, error) {
	var refund Refund
	status, reason, err := c.post(ctx, "/refunds", key, refundRequest{Charge: charge}, &refund)
	switch {
	case err != nil:
		return refund, fmt.Errorf("provider: refund: %w", err)
	case status != http.StatusOK:
		return refund, &StatusError{Status: status, Reason: reason}
	}
	return refund, nil
}

func (c *Client) post(ctx context.Context, path, key string, request, answer any) (status int, reason string, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return 0, "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(KeyHeader, key)
	response, err := c.http.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	if response.StatusCode/100 == 2 {
		if answer == nil {
			return response.StatusCode, "", nil
		}
		return response.StatusCode, "", json.NewDecoder(response.Body).Decode(answer)
	}
	var p problem
	_ = json.NewDecoder(response.Body).Decode(&p) // the status says enough
	return response.StatusCode, p.Reason, nil
}
