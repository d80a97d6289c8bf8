// Package entry is one entry of the journal: the rules it must obey, and that it can be reversed once.
//
//	entries := aggregate.NewRepository(store, entry.Type)
//	err := entries.In(work, key).Create(entry.Record{Entry: e}.Decide)
//
// An entry's stream is named by its key, which is made of what the entry says. Recording it with Create therefore
// answers the question whether it was recorded before.
//
// # Guarantees
//
//   - A recorded entry obeys every rule of journal.Check: nothing else can be stored.
//   - An entry is reversed at most once. A reversal is an entry like any other and names the entry that it reverses.
//
// # Errors
//
//	journal.ErrRule      the entry breaks a rule of bookkeeping
//	ErrNotRecorded       there is no entry with this key
//	ErrReversed          the entry was reversed before
//	ErrKeyUsed           another entry was recorded under the key
package entry
