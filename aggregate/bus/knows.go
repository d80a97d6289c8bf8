package bus

import (
	"fmt"
	"reflect"
)

// Knows returns nil when payloads of a Go type have a handler, else an [*UnknownCommandError]. It asks neither handlers nor
// the functions of the type. Handlers that are registered later are known then.
func (b *Bus) Knows(payload reflect.Type) error {
	_, err := b.routeOf(payload)
	return err
}

func (b *Bus) routeOf(goType reflect.Type) (*route, error) {
	route, known := b.routes.Load().byType[goType]
	if !known {
		reason := "register one with bus.Handle"
		if goType != nil && goType.Kind() == reflect.Pointer {
			reason = "send the value itself, not a pointer to it"
		}
		return nil, &UnknownCommandError{GoType: fmt.Sprint(goType), reason: reason}
	}
	return route, nil
}
