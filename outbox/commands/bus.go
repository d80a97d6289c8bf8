package commands

import (
	"errors"

	"github.com/daybook-go/daybook/aggregate/bus"
)

// checkBus refuses a bus that could not carry out a command twice without harm.
func checkBus(b *bus.Bus) error {
	if b == nil {
		return errors.New("commands: new dispatcher: the bus is nil: pass the one that bus.New made")
	}
	return nil
}
