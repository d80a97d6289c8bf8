package eventstore_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/daybook-go/daybook/eventstore"
)

type benchPosting struct {
	Account   string
	Commodity string
	Cents     int64
}

type benchEntry struct {
	Date        time.Time
	Description string
	Postings    []benchPosting
	Tags        map[string]string
}

func benchValue() benchEntry {
	return benchEntry{
		Date: time.Date(2013, 5, 1, 0, 0, 0, 0, time.UTC), Description: "weekly shopping at the market",
		Postings: []benchPosting{
			{"expenses:food", "EUR", 4210}, {"expenses:household", "EUR", 1999}, {"assets:checking", "EUR", -6209},
		},
		Tags: map[string]string{"receipt": "2013-0871"},
	}
}

func benchCatalog(codec eventstore.Codec) *eventstore.Catalog {
	return eventstore.NewCatalog(
		eventstore.TypeOf[benchEntry]("entry.posted", eventstore.EncodedAs(codec)),
		eventstore.TypeOf[accountDeposited]("account.deposited", eventstore.EncodedAs(codec)))
}

func BenchmarkEncode(b *testing.B) {
	for _, codec := range codecs {
		c := benchCatalog(codec)
		for name, event := range map[string]any{"small": accountDeposited{Cents: 100}, "entry": benchValue()} {
			b.Run(codec.ContentType()+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.Encode(event); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	b.Run("library/entry", func(b *testing.B) {
		b.ReportAllocs()
		event := benchValue()
		for b.Loop() {
			if _, err := msgpack.Marshal(&event); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, codec := range codecs {
		c := benchCatalog(codec)
		for name, event := range map[string]any{"small": accountDeposited{Cents: 100}, "entry": benchValue()} {
			data, err := c.Encode(event)
			if err != nil {
				b.Fatal(err)
			}
			e := recorded(data)
			b.Run(codec.ContentType()+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(e.Data)))
				for b.Loop() {
					if _, err := c.Decode(e); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		data, err := c.Encode(benchValue())
		if err != nil {
			b.Fatal(err)
		}
		e := recorded(data)
		b.Run(codec.ContentType()+"/entry typed", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := eventstore.DecodeAs[benchEntry](c, e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	// The library alone, on the same bytes and without any of the checks.
	data, err := eventstore.Msgpack.Marshal(benchValue())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("library/entry", func(b *testing.B) {
		b.ReportAllocs()
		dec, in := msgpack.NewDecoder(nil), bytes.NewReader(nil)
		for b.Loop() {
			in.Reset(data)
			dec.Reset(in)
			var event benchEntry
			if err := dec.Decode(&event); err != nil {
				b.Fatal(err)
			}
		}
	})
}
