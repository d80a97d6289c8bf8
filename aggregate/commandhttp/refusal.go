package commandhttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

const second = time.Second

// refusal marks an error as the domain's answer, under the code that was stored with it, if there is one.
type refusal struct {
	error
	code string
}

func (r refusal) Unwrap() error { return r.error }

// problemOf makes a problem of an error. Texts of the domain are for the caller, those of faults are for the log.
func (a *API) problemOf(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	for _, find := range []func(error) *Problem{
		protocol, a.explained, a.cfg.Problems.declared, a.cfg.Explain, known, undeclared,
	} {
		if find == nil {
			continue
		}
		if p := find(err); p != nil {
			return p
		}
	}
	return fault(err)
}

// protocol is what the request itself brought about, whatever the domain says.
func protocol(err error) *Problem {
	var (
		version *aggregate.VersionError
		over    *admission.OverloadedError
		invalid *bus.InvalidCommandError
	)
	switch {
	case errors.As(err, &version):
		p := &Problem{Kind: kindPrecondition, Field: "If-Match", Detail: "it is at version " + strconv.FormatInt(int64(version.Have), 10)}
		if version.Have == 0 {
			p.Detail, p.Remedy = "it is not there", "leave out If-Match to create it"
		} else {
			p.Header = http.Header{"Etag": {ETag(version.Have)}}
		}
		if version.Want == eventstore.NoStream {
			p.Field, p.Title, p.Remedy = "If-None-Match", "It exists already", "read it, and send its ETag as If-Match to change it"
		}
		return p
	case errors.As(err, &over):
		// Over its share, the caller has to slow down; otherwise there is nothing that it could do better.
		if over.Reason == admission.OverShare {
			return &Problem{Kind: kindShare, Detail: string(over.Reason), RetryAfter: max(over.RetryAfter, 1)}
		}
		return &Problem{Kind: kindOverloaded, Detail: string(over.Reason), RetryAfter: max(over.RetryAfter, 1)}
	case errors.Is(err, eventstore.ErrReusedKey):
		return &Problem{Kind: kindKeyUsed, Field: KeyHeader}
	case errors.Is(err, eventstore.ErrInProgress):
		return &Problem{Kind: kindInProgress, Field: KeyHeader, RetryAfter: second}
	case errors.Is(err, bus.ErrExpired), errors.Is(err, aggregate.ErrExpired):
		return &Problem{Kind: kindExpired} // without Retry-After: this key has had its answer
	case forbidden(err):
		return &Problem{Kind: kindForbidden}
	case errors.As(err, &invalid) && invalid.Err != nil:
		return notValid(invalid.Err.Error())
	}
	return nil
}

// explained is what the program says about a refusal, given what is known of it when it is repeated.
func (a *API) explained(err error) *Problem {
	if a.cfg.ExplainRefusal == nil || errors.Is(err, eventstore.ErrStreamClosed) {
		return nil
	}
	var (
		repeated *aggregate.RefusedError
		first    refusal
	)
	if errors.As(err, &repeated) {
		return a.cfg.ExplainRefusal(repeated.Code, repeated.Text)
	}
	code, declared := a.cfg.Problems.codeOf(err)
	if !errors.As(err, &first) && !declared {
		return nil
	}
	if first.code != "" { // as a repeat will have it
		code = first.code
	}
	return a.cfg.ExplainRefusal(code, err.Error())
}

// codeOf is the code of a rule's own error, and whether the registry knows the error.
func (p *Problems) codeOf(err error) (code string, known bool) {
	for _, t := range p.types {
		if t.For != nil && errors.Is(err, t.For) {
			return t.Code, true
		}
	}
	return "", false
}

// declared is what the registry says about an error of the domain.
func (p *Problems) declared(err error) *Problem {
	code := ""
	var (
		refused *aggregate.RefusedError
		first   refusal
	)
	switch {
	case errors.As(err, &refused):
		code = refused.Code
	case errors.As(err, &first):
		code = first.code
	}
	for _, t := range p.types {
		if t.For != nil && errors.Is(err, t.For) || code != "" && t.Code == code {
			return t.refuse(err.Error())
		}
	}
	return nil
}

// refuse is a problem of the type.
func (t ProblemType) refuse(text string) *Problem {
	return &Problem{Kind: t.Name, Detail: text, Rule: t.Code}
}

// known are errors of the framework that say something to a caller.
func known(err error) *Problem {
	switch {
	case errors.Is(err, bus.ErrNoOperation):
		return &Problem{Kind: kindNotFound, Title: "There is no such operation", Remedy: operationRemedy}
	case errors.Is(err, eventstore.ErrStreamNotFound):
		return &Problem{Kind: kindNotFound}
	case errors.Is(err, eventstore.ErrStreamClosed):
		return &Problem{Kind: kindClosed}
	case errors.Is(err, aggregate.ErrExists):
		return &Problem{Kind: kindExists}
	}
	return nil
}

// undeclared is a refusal that the registry does not know.
func undeclared(err error) *Problem {
	var r refusal
	if errors.As(err, &r) || errors.Is(err, aggregate.ErrRefused) {
		return &Problem{Kind: kindRule, Detail: err.Error()}
	}
	return nil
}

// fault is an error that the caller cannot help. Its text stays in the log.
func fault(err error) *Problem {
	var network net.Error
	switch {
	case errors.Is(err, eventstore.ErrUnconfirmed):
		return &Problem{Kind: kindUnconfirmed, RetryAfter: second, Err: err}
	case eventstore.IsRetryable(err):
		return &Problem{Kind: kindBusy, RetryAfter: second, Err: err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Problem{Kind: kindTimeout, RetryAfter: second, Err: err}
	case errors.As(err, &network):
		return &Problem{Kind: kindUnavailable, RetryAfter: 2 * second, Err: err}
	}
	return &Problem{Kind: kindFault, Err: err}
}
