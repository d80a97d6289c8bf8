package inbox_test

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox/inbox"
)

// A service that reserves stock for orders that another one publishes.
func ExampleNew() {
	pool, err := pgxpool.New(context.Background(), "postgres://stock@127.0.0.1/stock") // connects when it is used
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	broker := gochannel.NewGoChannel(gochannel.Config{}, nil)
	reserve := func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		_, err := tx.Exec(ctx, "INSERT INTO reservations (order_id, request) VALUES ($1, $2)", m.PartitionKey, m.Data)
		return err
	}
	in, err := inbox.New(pool, broker, inbox.Config{Name: "stock", Topic: "orders"}, reserve)
	if err != nil {
		panic(err)
	}
	health := in.Health(context.Background())
	fmt.Println(health.Component, "is", health.State)
	// Output: inbox stock v1 of orders is not running
}

// Messages that carry the whole state of an article, with a version of their own.
func ExampleNew_latest() {
	cfg := inbox.Config{
		Name: "articles", Topic: "articles", Mode: inbox.Latest,
		Latest: func(m inbox.Message) (string, int64, error) {
			version, err := strconv.ParseInt(m.Metadata.Headers["article-version"], 10, 64)
			return m.PartitionKey, version, err
		},
	}
	var m inbox.Message
	m.PartitionKey, m.Metadata.Headers = "article-7", map[string]string{"article-version": "12"}
	fmt.Println(cfg.Latest(m))
	// Output: article-7 12 <nil>
}

// Everything that is wrong with a configuration is said at once.
func ExampleConfig() {
	_, err := inbox.New(nil, nil, inbox.Config{Topic: "orders", Partitions: 5000}, nil)
	fmt.Println(err)
	// Output:
	// inbox: new: Config.Name: "": want 1 to 200 bytes without control characters
	// inbox: new: Config.Partitions: 5000: must be what the publishing store was installed with, 1 to 4096, or 0 for 64
	// inbox: new: pool is nil: pass the pool of the inbox's own database
	// inbox: new: subscriber is nil: pass a Watermill subscriber
	// inbox: new: handler is nil: pass what messages do
}

// What is done about messages of a partition of which everything up to position 20 is applied.
func ExampleJudge() {
	at := eventstore.PositionAt
	applied := inbox.Known{Applied: at(20)}
	fmt.Println(inbox.Judge(inbox.Arrival{Previous: at(10), Position: at(20)}, applied))
	fmt.Println(inbox.Judge(inbox.Arrival{Previous: at(20), Position: at(30)}, applied))
	fmt.Println(inbox.Judge(inbox.Arrival{Previous: at(30), Position: at(40)}, applied))
	// Output:
	// drop
	// apply
	// early
}

// The broker was purged: an operator gives up what is missing, and where an inbox goes on after its tables were filled by
// other means.
func ExampleAcceptGap() {
	operate := func(ctx context.Context, pool *pgxpool.Pool) error {
		by := inbox.By{Actor: "ann", Reason: "the queue was purged, see incident 12"}
		from, upTo, err := inbox.AcceptGap(ctx, pool, inbox.Ref{Name: "stock"}, 7, by)
		if err != nil {
			return err
		}
		fmt.Println("nothing comes any more between", from, "and", upTo)
		return inbox.Rebase(ctx, pool, inbox.Ref{Name: "articles"}, inbox.Base{
			Partition: inbox.AllPartitions, Position: eventstore.PositionAt(81_220),
		}, by)
	}
	_ = operate
}
