package bus

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// To says what the command is addressed to. Which commands need it depends on how their type is handled:
//
//	HandleAddressed              the id of the aggregate; must be given
//	HandleAggregate              the payload says it: leave To out, or give the id that it says
//	Handle, with bus.Target      the same, with the target that it says
//	Handle                       any text; it becomes the Target as it is
//
// Another id than that of the payload is an [*InvalidCommandError] with an [*eventstore.InvalidError] in it, and so is an
// address that cannot be one. An empty id is as none.
func To(id string) SendOption { return func(c *Command) { c.To = id } }

// Undoes says that the command undoes the one with this id. It travels with the command, and its handler finds it in
// [CommandFrom]. Let the handler use it, and not the id of the command that it carries out, as its idempotency key towards
// others, such as a provider of payments: several undos of one command then have one effect there. The handler must be
// harmless when nothing was done.
func Undoes(id uuid.UUID) SendOption { return func(c *Command) { c.Undoes = id } }

// routing says what the commands of a type are about. At most one of target and stream is set.
type routing struct {
	// target is the ordering key that the payload says.
	target func(payload any) string
	// says is what a command may be addressed to, as its payload says it.
	says func(payload any) string
	// stream is what a command is about that is addressed to an id.
	stream func(id string) eventstore.StreamID
}

// direct sets the target of a command, and leaves in To what the payload does not say.
func (r *route) direct(c *Command) error {
	switch {
	case r.stream != nil:
		return r.address(c)
	case r.says != nil:
		if c.To != "" {
			if says := r.says(c.Payload); c.To != says {
				return &eventstore.InvalidError{
					Field: "Command.To", Value: c.To, Reason: fmt.Sprintf("is not %q, which its payload says", says),
					Remedy: "leave bus.To out, or give what the payload says",
				}
			}
			c.To = ""
		}
	case c.To != "":
		if c.Target != "" && c.Target != c.To {
			return differs(c)
		}
		c.Target = c.To
	}
	if c.Target == "" && r.target != nil {
		c.Target = r.target(c.Payload)
	}
	return nil
}

// address directs a command of a type that is handled by what it is addressed to.
func (r *route) address(c *Command) error {
	if c.To == "" && c.Target != "" {
		stream, err := eventstore.ParseStreamID(c.Target)
		if err != nil || stream.Category != r.stream("").Category {
			return &eventstore.InvalidError{
				Field: "Command.Target", Value: c.Target, Reason: fmt.Sprintf("is no stream of category %q", r.stream("").Category),
				Remedy: "address the command with bus.To",
			}
		}
		c.To = stream.ID
		return nil
	}
	if c.To == "" {
		return &eventstore.InvalidError{
			Field: "Command.To", Reason: "names nobody", Remedy: "say with bus.To which aggregate the command is for",
		}
	}
	stream := r.stream(c.To)
	if err := stream.Validate(); err != nil {
		return fmt.Errorf("Command.To: %w", err)
	}
	if c.Target != "" && c.Target != stream.String() {
		return differs(c)
	}
	c.Target = stream.String()
	return nil
}

func differs(c *Command) error {
	return &eventstore.InvalidError{
		Field: "Command.To", Value: c.To, Reason: fmt.Sprintf("is not what its Target says, %q", c.Target), Remedy: "give one of the two",
	}
}

// idInTarget is the id of the aggregate that a command is addressed to; a category has no dash.
func idInTarget(c *Command) string {
	_, id, _ := strings.Cut(c.Target, "-")
	return id
}
