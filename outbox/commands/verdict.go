package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

// The codes of commands that failed, in Operation.Code and Reply.Code. Codes of refusals are those of the domain, besides
// the last three and [CodeSagaOver].
const (
	// CodeUnknownType: no handler is registered for the command.
	CodeUnknownType = "unknown_type"
	// CodeInvalid: the command cannot be read, or says of itself that it is not valid. The reason is for who gave it.
	CodeInvalid = "invalid"
	// CodeUnstorable: its handler asked for what cannot be stored.
	CodeUnstorable = "unstorable"
	// CodePanic: its handler panicked.
	CodePanic = "panic"
	// CodeTimeout: its handler did not come to an end in time. What it may still do is refused.
	CodeTimeout = "timeout"
	// CodeTargetHung: commands before it for the same target have used up the time. It was not carried out, and never is.
	CodeTargetHung = "target_hung"
	// CodeExhausted: it failed as often as Config.Attempts allows.
	CodeExhausted = "attempts_exhausted"
	// CodeReusedKey: its idempotency key was used before for another request.
	CodeReusedKey = "reused_key"
	// CodeKeyUnused: its handler did what it did without the idempotency key.
	CodeKeyUnused = "key_unused"
	// CodeMisuse: its handler used a Work in a way that cannot be right.
	CodeMisuse = "misuse"
	// CodeVersion: the stream was not at the version that the command demands.
	CodeVersion = "version"
	// CodeForbidden: its sender may not give it.
	CodeForbidden = "forbidden"
	// CodeClosed: the stream takes no more events.
	CodeClosed = "stream_closed"
)

const (
	maxNote   = 1000
	maxCode   = 200
	maxReason = 8 << 10
	maxResult = 1 << 20
)

// verdict is how a command ended.
type verdict struct {
	state        bus.OperationState
	code, reason string
	result       []byte
	contentType  string
	stream       eventstore.StreamID
	version      eventstore.Version
	token        eventstore.Token
	// stored: the outcome is kept under the command's key, so that nobody can come to another one.
	stored bool
	// ended: it was ended under its key by somebody else.
	ended bool
	// unheard: its handler was not asked, so that nothing is known of what is stored under its key.
	unheard bool
}

// final judges what a dispatch returned. It reports false for what another attempt may not meet.
func final(reply bus.Reply, err error) (verdict, bool) {
	bad := func(state bus.OperationState, code string) (verdict, bool) {
		return verdict{state: state, code: code, reason: err.Error()}, true
	}
	var refused *aggregate.RefusedError
	var misread *bus.InvalidCommandError
	var panicked *bus.PanicError
	switch {
	case err == nil:
		return succeeded(reply), true
	case errors.As(err, &refused):
		return verdict{
			state: bus.OperationRefused, code: refused.Code, reason: refused.Text, stream: reply.Stream, version: reply.Version, stored: true,
		}, true
	case reply.Stored && bus.StateOf(reply, err) == bus.OperationRefused: // for the first time
		return refusedFirst(reply, err), true
	case errors.Is(err, bus.ErrExpired), errors.Is(err, aggregate.ErrExpired):
		v, _ := bad(bus.OperationExpired, "")
		v.stored = true
		return v, true
	case errors.Is(err, bus.ErrUnknownCommand):
		v, _ := bad(bus.OperationFailed, CodeUnknownType)
		v.unheard = true
		return v, true
	case errors.As(err, &misread):
		v, _ := bad(bus.OperationFailed, CodeInvalid)
		v.unheard = true
		if misread.Err != nil {
			v.reason = misread.Err.Error() // who gave the command knows which it was
		}
		return v, true
	case errors.As(err, &panicked):
		return bad(bus.OperationFailed, CodePanic)
	case errors.Is(err, bus.ErrForbidden):
		v, _ := bad(bus.OperationRefused, CodeForbidden)
		v.unheard = true
		return v, true
	case errors.Is(err, aggregate.ErrVersion):
		return bad(bus.OperationRefused, CodeVersion)
	case errors.Is(err, eventstore.ErrReusedKey):
		return bad(bus.OperationFailed, CodeReusedKey)
	case errors.Is(err, eventstore.ErrStreamClosed):
		return bad(bus.OperationRefused, CodeClosed)
	case errors.Is(err, eventstore.ErrInvalid):
		return bad(bus.OperationFailed, CodeUnstorable)
	case errors.Is(err, bus.ErrKeyUnused):
		return bad(bus.OperationFailed, CodeKeyUnused)
	case errors.Is(err, aggregate.ErrMisuse):
		return bad(bus.OperationFailed, CodeMisuse)
	case reply.Refused && bus.StateOf(reply, err) == bus.OperationRefused: // the handler says so, and keeps it under no key
		return refusedFirst(reply, err), true
	}
	return verdict{}, false
}

func refusedFirst(reply bus.Reply, err error) verdict {
	return verdict{
		state: bus.OperationRefused, code: reply.Code, reason: err.Error(), stream: reply.Stream, version: reply.Version, stored: reply.Stored,
	}
}

func succeeded(reply bus.Reply) verdict {
	v := verdict{state: bus.OperationDone, stream: reply.Stream, version: reply.Version, token: reply.Token, stored: true}
	data, contentType, err := encodeResult(reply.Result)
	if err != nil {
		v.reason = fmt.Sprintf("it was carried out; its result is left out: %v", err)
		return v
	}
	v.result, v.contentType = data, contentType
	return v
}

// encodeResult gives the stored form of what a handler returned: bytes as they are, anything else as JSON.
func encodeResult(result any) (data []byte, contentType string, err error) {
	switch r := result.(type) {
	case nil:
		return nil, "", nil
	case json.RawMessage:
		data, contentType = r, eventstore.JSON.ContentType()
	case []byte:
		data, contentType = r, "application/octet-stream"
	default:
		contentType = eventstore.JSON.ContentType()
		if data, err = eventstore.JSON.Marshal(result); err != nil {
			if data, err = json.Marshal(result); err != nil {
				return nil, "", err
			}
		}
	}
	if len(data) > maxResult {
		return nil, "", fmt.Errorf("its %d bytes are more than 1 MiB", len(data))
	}
	if len(data) == 0 {
		contentType = ""
	}
	return data, contentType, nil
}

// cleaned is a text that PostgreSQL can store, of at most so many bytes.
func cleaned(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= limit {
		return text
	}
	text = text[:limit-len("…")]
	for len(text) > 0 && !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}
