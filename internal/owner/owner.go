// Package owner names the process that holds a lease, so that people who look into the store know whom to ask.
package owner

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
)

// Name is "host/process/random". The random part makes each call's name its own, also where processes in containers share
// the rest.
func Name() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), hex.EncodeToString(random[:]))
}
