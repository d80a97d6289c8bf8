// Package api is the ledger over HTTP, as JSON: its commands, its entries and accounts from the log, and its read models,
// which another process keeps. How a request goes, and most statuses, are those of package commandhttp.
//
//	handler, err := api.New(api.Config{Bus: commands.NewBus(store, ledger, commands.Config{}), Book: ledger, Store: store, DB: pool})
//	err = (&http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}).ListenAndServe()
//
// The resources are
//
//	POST /entries                   post an entry: {"date", "description", "postings": [{"account", "amount", "commodity"}], "key"}
//	POST /entries/{key}/reversal    take an entry back: {"date"}
//	GET  /entries/{key}             an entry, as it is now
//	POST /accounts                  open an account, with If-None-Match: *: {"name", "neverBelowZero"}
//	PUT  /accounts/{name}           change its terms, with If-Match: {"neverBelowZero"}
//	GET  /accounts/{name}           an account, as it is now
//	GET  /balances                  all balances that are not zero
//	GET  /balances/{account}        those of one account; none for an account that does not exist
//	GET  /operations/{id}           how far a command is whose caller does not wait, also as an event stream
//	GET  /problems                  the types of problems
//	GET  /healthz                   200 while the process lives
//	GET  /readyz                    200 while it can append and read, else 503
//	GET  /openapi.yaml              all of this, for programs; see [Description]
//
// Amounts are texts such as "-12.50", because JSON's numbers are floats to many.
//
// # Names of commands and of entries
//
// Every command has an Idempotency-Key, under which it takes effect once. "key" is something else: the caller's own name
// for an entry, at most 200 bytes. What the ledger calls a key, 64 hexadecimal digits, is taken as it is, and any other
// text is hashed to one. Without it the entry is named after caller and Idempotency-Key.
//
// # Reading what was written
//
// The answer to a command carries the header Consistency-Token. A read of balances that sends it back waits until the
// read model shows what it stands for, whichever process the two go to: at most for "?wait=", or for "Prefer: wait=" in
// whole seconds, else for 2 s; never for more than 30 s. Several such headers are all waited for. When the wait was too
// long, the answer is 503 with Retry-After, and says how far behind the read model is; with "Prefer: handling=lenient" it
// is 200 with the balances as they are, marked by "Preference-Applied: handling=lenient", by Consistency-Lag, which is
// how many events are missing at most, and by "stale" in the body. Without a token a read never waits. Entries and
// accounts come from the log and are never older than any token.
//
// # Callers
//
// [CallerHeader] says who asks; a proxy in front sets it. Each caller has keys, operations and a share of the queue of its
// own. [PriorityHeader] says how much a request matters: urgency 0 and 1 are critical, if there is a caller, and 5 to 7
// are bulk.
//
// # Guarantees
//
//   - An entry is stored as a whole or not at all, and once per command and per name.
//   - What was answered with 503 may be sent again as it is. A refusal by a rule is repeated as it was.
//   - A read with a token is never older than it, unless it is marked.
//   - Every answer of 400 and above is a problem (RFC 9457) that names what is wrong and what to do, but those of
//     "/readyz".
//   - Neither the log nor a problem of ours (5xx) contains what was posted.
//
// # Caveats
//
// There is no authentication: whoever reaches the address may post, and call itself what it likes.
//
// # Errors
//
// Those of package commandhttp, and these types of the ledger's own:
//
//	404 no-entry, no-account    there is none
//	409 reversed                the entry was reversed before
//	409 name-used               the "key" was given to another entry
//	422 rule                    the request breaks a rule by itself; "rule" says which
//	422 not-open, below-zero, too-many-digits, other-terms    the account is against it
package api
