package saga

import (
	"errors"
	"fmt"
	"reflect"
)

// sends is a type of commands that a definition declares to send.
type sends struct {
	step, field string
	payload     reflect.Type
}

// knower is a [Sender] that can say before anything is sent whether it can make the stored form of a type of commands.
type knower interface {
	Knows(payload reflect.Type) error
}

// checkSends asks the sender for all types of commands that definitions declare: a command that nobody has registered is found
// when the manager is made, and not by the first event that brings it about. Reactions of a [Flow] and [WhenEach] do not say
// what they send.
func checkSends(sender Sender, definitions []Definition) error {
	asked, ok := sender.(knower)
	if !ok {
		return nil
	}
	var faults []error
	for _, one := range definitions {
		d, ok := one.(*definition)
		if !ok {
			continue
		}
		for _, s := range d.sends {
			if err := asked.Knows(s.payload); err != nil {
				faults = append(faults, &DefinitionError{
					Saga: d.name, Version: d.version, Step: s.step, Reason: fmt.Sprintf("field %s sends %s, which the sender does not know (%v)", s.field, s.payload, err),
					Remedy: "register its handler before the manager is made",
				})
			}
		}
	}
	return errors.Join(faults...)
}
