package pgserver

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// verifier is what a server keeps of a password, as it would make it itself, but for one round of its hash in place of 4096.
// The rounds protect passwords that people choose from those who read the server's files; ours are random. Each connection
// would pay for them, and a test opens many: with the race detector, ten milliseconds each.
func verifier(password string) (string, error) {
	const rounds = 1
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails: the runtime aborts instead
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		return "", err
	}
	stored := sha256.Sum256(keyed(salted, "Client Key"))
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, b64(salt), b64(stored[:]), b64(keyed(salted, "Server Key"))), nil
}

func keyed(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
