// Package api is the ledger over HTTP, as JSON: it appends, and it reads the read models, which another process keeps.
//
//	handler := api.New(ledger, store, pool, api.Config{})
//	err := (&http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}).ListenAndServe()
//
// The resources are
//
//	POST /entries               post an entry: {"date", "description", "postings": [{"account", "amount", "commodity"}], "key"}
//	GET  /entries/{key}         an entry, as it is now
//	GET  /balances              all balances that are not zero
//	GET  /balances/{account}    those of one account; none for an account that does not exist
//	GET  /healthz               200 while the process lives
//	GET  /readyz                200 while it can append and read, else 503
//
// Amounts are texts such as "-12.50", because JSON's numbers are floats to many. A key is the caller's own name for the
// entry; one that is left out is made. What the ledger calls a key, 64 hexadecimal digits, is taken as it is, and any other
// text is hashed to one.
//
// # Reading what was written
//
// The answer to a post carries the header Consistency-Token. A read of balances that sends it back waits until the read
// model shows that entry, whichever process the two go to: at most for "?wait=", or for "Prefer: wait=" in whole seconds,
// else for 2 s; never for more than 30 s. Several such headers are all waited for. When the wait was too long, the answer is
// 503 with Retry-After, and says how far behind the read model is; with "Prefer: handling=lenient" it is 200 with the
// balances as they are, marked by "Preference-Applied: handling=lenient", by Consistency-Lag, which is how many events are
// missing at most, and by "stale" in the body. Without a token a read never waits.
//
// # Guarantees
//
//   - An entry is stored as a whole or not at all, and once per key: a post that is repeated with the same key and content
//     is answered with 200 and writes nothing. So a post whose answer was lost can be sent again.
//   - A read with a token is never older than it, unless it is marked.
//   - Every answer of 400 and above is a problem (RFC 9457) that names what is wrong and what to do.
//   - Neither the log nor a problem of ours (5xx) contains what was posted.
//
// # Caveats
//
// There is no authentication: whoever reaches the address may post. With several posts of the same entry under no key each
// is an entry of its own.
//
// # Errors
//
//	400    the request cannot be read: no JSON, another type, an unknown member, no token, no account name
//	404    nothing is there
//	405    another method; Allow names those that are possible
//	409    the key was used for another entry; the token lies beyond the log, which has lost commits
//	410    the token is of an earlier history of the store: drop it
//	413    the body is larger than 1 MiB
//	415    the body is not application/json
//	422    the entry can be read and breaks a rule
//	500    a fault of this program
//	503    try again later: the read model is behind or stopped, the database is away or busy
package api
