// Package commandhttp puts commands and reads behind HTTP, with net/http alone: a command is sent once however often its
// request is, a caller says which version it decided on, an overloaded server says when to come back, and a caller that
// does not want to wait asks later.
//
//	api, err := commandhttp.New(commandhttp.Config{
//		Bus: commands, Gate: gate, Caller: whoIs, Operations: queue, Problems: problems,
//	})
//	commandhttp.Command(api, "POST /accounts/{id}/withdrawals", commandhttp.Endpoint[Withdraw]{
//		IfMatch: commandhttp.Optional, Status: http.StatusCreated,
//		Fill: func(r *http.Request, c *Withdraw) error { c.Account = r.PathValue("id"); return nil },
//	})
//	commandhttp.Query(api, "GET /accounts/{id}", commandhttp.Read[aggregate.Loaded[Account]]{
//		Load:    func(ctx context.Context, r *http.Request) (aggregate.Loaded[Account], error) { … },
//		Version: func(a aggregate.Loaded[Account]) eventstore.Version { return a.Version },
//	})
//	server := http.Server{Handler: api, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute}
//	server.RegisterOnShutdown(api.Close)
//
// # The way of a request
//
// A panic is caught. Config.Caller says who asks. The gate lets the request in, or sends it away; until then nothing but
// the head of it was looked at. Then the headers count, then the Consistency-Token is waited for, and at last the body is
// read, the command carried out, and the answer written.
//
// # Headers of commands
//
//   - Idempotency-Key: "text" names the request; the quotes may be missing. The same key with the same request is answered
//     as the first was, with the same status, body, ETag, Consistency-Token and Location, and Idempotency-Replayed: true.
//     Keys of two scopes never meet. How long keys are kept is up to the store.
//   - If-Match: "v7" lets the command be carried out only if the stream is at version 7; of a list, one must be true; *
//     wants any version. If-None-Match: * wants that there is none. A weak tag never matches. A repeat is not compared:
//     it gets its first answer.
//   - Prefer: respond-async is answered with 202 and Location: /operations/{id} as soon as the command is stored. With
//     wait=N the answer is the real one if it comes within N seconds. Preference-Applied says what was followed. It is
//     not followed without Config.Operations, and with a list in If-Match. A repeat gets the same operation, as it is by
//     now, and is not marked.
//   - Consistency-Token: what it stands for is waited for before the command is carried out. Every answer to a command
//     that wrote has one.
//
// # Headers of reads
//
//   - ETag is the version of the stream, "v7", or one of the bytes. If-None-Match and If-Match are heeded.
//   - Consistency-Token, several of them too: the read waits until it shows what they stand for, for Prefer: wait=N seconds
//     or Config.Patience. Who prefers handling=lenient is answered all the same after that, marked with Consistency-Lag.
//
// # Operations
//
// GET /operations/{id} shows {id, state, progress, note, result, problem, token, etag, accepted, started, changed,
// finished, deadline, links}; times and members that are not known are left out. The state is accepted, running, done,
// refused, expired or failed. One that failed is data under 200: its problem is the one that the request would have been
// answered with, as far as the code and the text of a refusal tell; see Config.ExplainRefusal. Other scopes get 404. The
// ETag is the revision. Prefer: wait=N waits for the end. With Accept: text/event-stream each change is pushed, as an
// event with the revision as its id, the state as its name and the same JSON as its data; Last-Event-ID goes on from
// there, the stream ends with the operation, and who comes again after that gets 204.
//
// # Guarantees
//
//   - A request that was sent away by the gate did nothing, and nothing of its body was read. One that is answered with 4xx
//     has no effect; what a rule refused, and nothing else of these, is remembered under its key.
//   - With [bus.Idempotent] a command takes effect once per key. What was answered with 500 or 503 may be sent again as
//     it is.
//   - A command in hand is done to its end, or to the end of Config.Grace, although the caller has gone.
//   - A precondition is heeded or refused, and never passed over, if handlers do as [Optional] says.
//   - The text of a refusal is for the caller, and so is what a command that is not valid says of itself, now or in an
//     operation. That of a fault is for the log, and no answer has it; the value of a panic is in neither.
//   - Bodies, the time that they take, waiting requests, event streams and every piece that is written to one are bounded.
//   - Class [admission.Operator] is never sent away by the gate. How many may wait for a token or hold an event stream is
//     bounded for all.
//
// # Caveats
//
// What an [aggregate] stores as the refusal of a key is a refusal, 422 with its text, also of an error that nobody declared:
// mark what may pass with [aggregate.Transient]. Without a key, handlers of one's own say what is a refusal: with
// bus.Reply.Refused, or by an error that the registry knows. Any other error is a fault, 500.
//
// What a Render or a Location says must follow from the reply alone, or a repeat will say something else; the same holds
// for an Explain that looks into an error, as a repeated refusal has nothing but code and text. A result is shown for an
// operation as the handler's JSON, not as Render has it.
//
// An ETag made of a version does not change when a new release renders the same state in another way. That of a command's
// answer is the one of the stream that it changed. Event streams over HTTP/1.1 close their connection at the end.
//
// How long a client may take to read an answer is up to http.Server.WriteTimeout, which must be longer than
// Config.MaxPatience and Config.Time together; event streams have deadlines of their own and go on beyond it.
//
// Without a caller all share one scope. Config.Caller is asked before admission, so it must be cheap, or bounded by itself.
// While a request waits for the first with its key, it has a place among those that work; [bus.TellIfRunning] makes that a
// 409.
//
// # Statuses
//
// Each problem has a type of the registry, which is named here; GET /problems lists them all.
//
//	200  carried out, or read; an operation, also one that failed
//	201  carried out, if the Endpoint says so
//	202  stored, and carried out later
//	204  carried out, and nothing to show; an event stream that has ended before
//	304  the reader has it
//	400  syntax: a header, a path or a body that cannot be read; key-missing
//	401  caller: not known
//	403  forbidden
//	404  not-found: no endpoint, no stream, no operation of the caller's
//	405  method: Allow has the others
//	406  not-acceptable: an operation is JSON or an event stream
//	409  in-progress: the key's first request is being carried out; exists; closed; beyond-log: the log never had the token
//	410  other-history: the token is from before the store was restored
//	412  precondition: the ETag says what is there
//	413  too-large
//	415  media-type
//	422  rule, or a type of the program's: a rule refused it; key-used: by another request
//	428  precondition-required
//	429  share: this tenant has more in hand than its share
//	500  fault
//	503  overloaded, busy, timeout, unconfirmed, unavailable, stale, stopped, set-aside, watchers: with Retry-After, send it again
//	503  expired: without Retry-After, as this key has had its answer: it came too late, and never will be carried out
//
// 429 is for what the caller can help, by sending less; all else that passes is 503 (RFC 6585, RFC 9110). That a command
// expired is 503, not 504: no gateway waited for anybody, the server did not get to it. An endpoint whose command has no
// handler is a fault of the program, so it is 500 and not 404.
package commandhttp
