package brokertest

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/projection"
)

// counted is the only event: N is its version, so that the content is checked too.
type counted struct {
	Key string `msgpack:"k"`
	N   int64  `msgpack:"n"`
}

const category = "counter"

var (
	countedType = eventstore.TypeOf[counted]("counter.counted")
	catalog     = eventstore.NewCatalog(countedType)
)

// model is a read model: per stream how many events it has seen and the last, what came out of order, and how long each
// event took. Nothing is unique that could hide an event that is applied twice.
type model struct {
	name    string
	catchUp bool
}

var models = []model{{"by_log", true}, {"by_outbox", false}}

func (m model) sql(text string) string { return strings.ReplaceAll(text, "{model}", m.name) }

func (m model) projection() projection.Projection {
	return projection.Projection{
		Name: m.name, Version: 1, Events: catalog,
		Setup: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, m.sql(setupSQL))
			return err
		},
		Handlers: []projection.Handler{projection.Handle(func(ctx context.Context, tx pgx.Tx, e projection.Event[counted]) error {
			if e.Payload.Key != e.Stream.ID || e.Payload.N != int64(e.Version) {
				return fmt.Errorf("the payload of %s at %d says %+v", e.Stream, e.Version, e.Payload)
			}
			_, err := tx.Exec(ctx, m.sql(applySQL), e.Stream.ID, int64(e.Version), e.RecordedAt)
			return err
		})},
	}
}

const setupSQL = `
CREATE TABLE readmodels.{model}_seen (stream text PRIMARY KEY, count bigint NOT NULL, last bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE readmodels.{model}_wrong (stream text NOT NULL, last bigint NOT NULL, came bigint NOT NULL);
CREATE TABLE readmodels.{model}_took (ms double precision NOT NULL)`

const applySQL = `
WITH old AS (SELECT s.last FROM readmodels.{model}_seen s WHERE s.stream = $1),
     new AS (INSERT INTO readmodels.{model}_seen AS s (stream, count, last) VALUES ($1, 1, $2::bigint)
             ON CONFLICT (stream) DO UPDATE SET count = s.count + 1, last = excluded.last),
     bad AS (INSERT INTO readmodels.{model}_wrong (stream, last, came)
             SELECT $1, o.last, $2::bigint FROM (SELECT coalesce((SELECT last FROM old), 0) AS last) o WHERE o.last <> $2::bigint - 1)
INSERT INTO readmodels.{model}_took (ms) SELECT 1000 * extract(epoch FROM clock_timestamp() - $3::timestamptz)`
