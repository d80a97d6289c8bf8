package gochannel

import (
	"testing"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/integration/brokertest"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	c := Open()
	brokertest.Taken(t, c, "plain", brokertest.Message(10))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	brokertest.Refused(t, c, "plain", brokertest.Message(10), "closed", Classify, eventstore.Environment)
}
