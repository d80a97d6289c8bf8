package commandhttp

import "net/http"

// The names of the types of this package.
const (
	kindSyntax       = "syntax"
	kindKeyMissing   = "key-missing"
	kindCaller       = "caller"
	kindForbidden    = "forbidden"
	kindNotFound     = "not-found"
	kindMethod       = "method"
	kindAcceptable   = "not-acceptable"
	kindInProgress   = "in-progress"
	kindExists       = "exists"
	kindClosed       = "closed"
	kindBeyondLog    = "beyond-log"
	kindOtherHistory = "other-history"
	kindPrecondition = "precondition"
	kindTooLarge     = "too-large"
	kindMediaType    = "media-type"
	kindRule         = "rule"
	kindKeyUsed      = "key-used"
	kindNeedsMatch   = "precondition-required"
	kindShare        = "share"
	kindFault        = "fault"
	kindOverloaded   = "overloaded"
	kindBusy         = "busy"
	kindTimeout      = "timeout"
	kindUnconfirmed  = "unconfirmed"
	kindExpired      = "expired"
	kindStale        = "stale"
	kindStopped      = "stopped"
	kindSetAside     = "set-aside"
	kindUnavailable  = "unavailable"
	kindWatchers     = "watchers"
)

// builtin are the types that every API has, by status.
func builtin() []ProblemType {
	const sameKey = "send the same request again, with the same Idempotency-Key: it takes effect once"
	return []ProblemType{
		{Name: kindSyntax, Status: http.StatusBadRequest, Title: "The request cannot be read", Remedy: "see field and detail"},
		{
			Name: kindKeyMissing, Status: http.StatusBadRequest, Title: "The request has no Idempotency-Key",
			Remedy: `add a key of its own, such as Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324", and keep it when you send the request again`,
		},
		{Name: kindCaller, Status: http.StatusUnauthorized, Title: "The caller is not known", Remedy: "send credentials"},
		{Name: kindForbidden, Status: http.StatusForbidden, Title: "The caller may not do this", Remedy: "ask for the right to do it"},
		{Name: kindNotFound, Status: http.StatusNotFound, Title: "Nothing is here", Remedy: "check the path"},
		{Name: kindMethod, Status: http.StatusMethodNotAllowed, Title: "Another method is needed"},
		{Name: kindAcceptable, Status: http.StatusNotAcceptable, Title: "The answer has no such form", Remedy: "accept application/json"},
		{
			Name: kindInProgress, Status: http.StatusConflict, Title: "A request with this key is being carried out",
			Remedy: "send it again in a moment, with the same key: the answer will be that of the first",
		},
		{Name: kindExists, Status: http.StatusConflict, Title: "It exists already", Remedy: "read what is there"},
		{Name: kindClosed, Status: http.StatusConflict, Title: "It takes no more changes", Remedy: "use another one"},
		{
			Name: kindBeyondLog, Status: http.StatusConflict, Title: "The token is not of this log",
			Remedy: "drop the token, and tell the operator: the log may have lost what it stands for",
		},
		{
			Name: kindOtherHistory, Status: http.StatusGone, Title: "The token is of another history",
			Remedy: "drop the token, and read again what it stood for",
		},
		{
			Name: kindPrecondition, Status: http.StatusPreconditionFailed, Title: "It has changed since it was read",
			Remedy: "read it again, decide again, and send the new ETag under a new Idempotency-Key",
		},
		{Name: kindTooLarge, Status: http.StatusRequestEntityTooLarge, Title: "The body is too large", Remedy: "send less at a time"},
		{
			Name: kindMediaType, Status: http.StatusUnsupportedMediaType, Title: "The body is not JSON",
			Remedy: "send application/json, in UTF-8 and not compressed",
		},
		{Name: kindRule, Status: http.StatusUnprocessableEntity, Title: "The request breaks a rule", Remedy: "see detail"},
		{
			Name: kindKeyUsed, Status: http.StatusUnprocessableEntity, Title: "The key was used for another request",
			Remedy: "give this request a key of its own",
		},
		{
			Name: kindNeedsMatch, Status: http.StatusPreconditionRequired, Title: "The request must say which version it is for",
			Remedy: "read it first, and send its ETag as If-Match",
		},
		{
			Name: kindShare, Status: http.StatusTooManyRequests, Title: "Too many requests of this caller at once",
			Remedy: "send fewer at once; nothing was done: send the same request again after Retry-After",
		},
		{Name: kindFault, Status: http.StatusInternalServerError, Title: "The server has made a mistake", Remedy: "tell the operator when it was"},
		{
			Name: kindOverloaded, Status: http.StatusServiceUnavailable, Title: "The server has too much to do",
			Remedy: "nothing was done: send the same request again after Retry-After",
		},
		{Name: kindBusy, Status: http.StatusServiceUnavailable, Title: "Too many want the same at once", Remedy: sameKey},
		{Name: kindTimeout, Status: http.StatusServiceUnavailable, Title: "It took too long", Remedy: sameKey},
		{Name: kindUnconfirmed, Status: http.StatusServiceUnavailable, Title: "Whether it was stored is not certain", Remedy: sameKey},
		{
			Name: kindExpired, Status: http.StatusServiceUnavailable, Title: "The request came too late to be carried out",
			Remedy: "nothing was done, and nothing will be under this key: send it under a new Idempotency-Key",
		},
		{
			Name: kindStale, Status: http.StatusServiceUnavailable, Title: "What was written cannot be read here yet",
			Remedy: "ask again with the same token; do not write again. For the answer as it is, add Prefer: handling=lenient",
		},
		{
			Name: kindStopped, Status: http.StatusServiceUnavailable, Title: "What is read stands still",
			Remedy: "what was written is stored: read without the token to see what was shown before, and tell the operator",
		},
		{
			Name: kindSetAside, Status: http.StatusServiceUnavailable, Title: "What was written cannot be read here until it is mended",
			Remedy: "what was written is stored; do not write again. Ask again later, or, for the answer as it is, add Prefer: handling=lenient",
		},
		{Name: kindUnavailable, Status: http.StatusServiceUnavailable, Title: "A part of the server is away", Remedy: sameKey},
		{
			Name: kindWatchers, Status: http.StatusServiceUnavailable, Title: "Too many are watching",
			Remedy: "ask without Accept: text/event-stream from time to time",
		},
	}
}
