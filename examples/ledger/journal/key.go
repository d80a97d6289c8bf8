package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// canonicalFormat names the encoding. Keys are stored for ever: another
// encoding would make every entry new again.
const canonicalFormat = "daybook-journal-entry-1"

// Canonical is what an entry says, as bytes: two entries have the same bytes
// if and only if they agree on date, description, and the postings in order
// with account, value and commodity. Each part is written as its length in
// bytes in decimal, a colon and the part, so no part can run into the next:
// the format's name, the date, the description, the number of postings, and
// for each posting account, amount as [CanonicalAmount], commodity.
func Canonical(e Entry) []byte {
	b := appendPart(nil, canonicalFormat)
	b = appendPart(b, e.Date.String())
	b = appendPart(b, e.Description)
	b = appendPart(b, strconv.Itoa(len(e.Postings)))
	for _, p := range e.Postings {
		b = appendPart(b, p.Account)
		b = appendPart(b, CanonicalAmount(p.Amount))
		b = appendPart(b, p.Commodity)
	}
	return b
}

func appendPart(b []byte, part string) []byte {
	b = strconv.AppendInt(b, int64(len(part)), 10)
	b = append(b, ':')
	return append(b, part...)
}

// Keyer gives the entries of one file their keys. Equal entries are counted:
// the first coffee of a day and the second, equal one get different keys, and
// the same file always yields the same keys. A Keyer serves one file, in order,
// and is not safe for concurrent use.
type Keyer struct {
	counts map[[sha256.Size]byte]int
}

// NewKeyer returns a Keyer for one file.
func NewKeyer() *Keyer {
	return &Keyer{counts: make(map[[sha256.Size]byte]int)}
}

// Key is the SHA-256, as 64 hexadecimal digits in lower case, of the entry's
// canonical bytes followed, as one more part, by its number among the equal
// entries of the file, from 1.
func (k *Keyer) Key(e Entry) string {
	content := Canonical(e)
	sum := sha256.Sum256(content)
	k.counts[sum]++
	key := sha256.Sum256(appendPart(content, strconv.Itoa(k.counts[sum])))
	return hex.EncodeToString(key[:])
}
