package saga

import (
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

func (p Process[S]) define() *definition { return &definition{name: p.Name, version: p.Version} }
func (f Flow[S]) define() *definition    { return &definition{name: f.Name, version: f.Version} }

func defineAfter(name string, _ time.Duration, _ *eventstore.Catalog, _ Trigger, _ Cancel) *definition {
	return &definition{name: name, version: 1}
}

func defineReactor(name string, _ *eventstore.Catalog, _ []Trigger) *definition {
	return &definition{name: name, version: 1}
}
