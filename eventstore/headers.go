package eventstore

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// EncodeHeaders is for engines: it gives the stored form of metadata headers, a msgpack map of text to text with sorted
// keys, and nil for no headers.
func EncodeHeaders(headers map[string]string) ([]byte, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.SetSortMapKeys(true)
	if err := enc.Encode(headers); err != nil {
		return nil, fmt.Errorf("eventstore: encode headers: %w", err)
	}
	return b.Bytes(), nil
}

// DecodeHeaders is for engines: it reads what [EncodeHeaders] gave.
func DecodeHeaders(data []byte) (map[string]string, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var headers map[string]string
	if err := msgpack.Unmarshal(data, &headers); err != nil {
		return nil, fmt.Errorf("eventstore: decode headers: %w", err)
	}
	return headers, nil
}
