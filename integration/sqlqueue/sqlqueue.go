// Package sqlqueue is watermill-sql with Daybook: topics are tables of a PostgreSQL database, usually of another server
// than the store's.
package sqlqueue

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// region tables

// tables are those of watermill-sql, with payloads that need not be JSON.
func tables() sql.DefaultPostgreSQLSchema {
	return sql.DefaultPostgreSQLSchema{
		GeneratePayloadType: func(string) string { return "BYTEA" },
		SubscribeBatchSize:  100,
	}
}

// endregion

// region publisher

// NewPublisher connects the publisher of a relay. Publish returns when the row is committed.
func NewPublisher(url string) (message.Publisher, error) {
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return nil, err
	}
	p, err := sql.NewPublisher(sql.BeginnerFromPgx(pool), sql.PublisherConfig{SchemaAdapter: tables()}, nil)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return publisher{p, pool}, nil
}

// endregion

// region subscriber

// NewSubscriber connects a follower. The name is that of a runner in a process: it goes on where it was, and a new one
// begins at the beginning of the table.
func NewSubscriber(url, name string) (message.Subscriber, error) {
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return nil, err
	}
	s, err := sql.NewSubscriber(sql.BeginnerFromPgx(pool), sql.SubscriberConfig{
		ConsumerGroup: name, SchemaAdapter: tables(), OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true,
		PollInterval:     50 * time.Millisecond, // the default of a second is the latency
		ResendInterval:   100 * time.Millisecond,
		RetryInterval:    250 * time.Millisecond,
	}, nil)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return subscriber{s, pool}, nil
}

// endregion

// publisher and subscriber close their pools.
type publisher struct {
	message.Publisher
	pool *pgxpool.Pool
}

func (p publisher) Close() error {
	err := p.Publisher.Close()
	p.pool.Close()
	return err
}

type subscriber struct {
	message.Subscriber
	pool *pgxpool.Pool
}

func (s subscriber) Close() error {
	err := s.Subscriber.Close()
	s.pool.Close()
	return err
}

// MakeTable makes the table of a topic. It belongs where you migrate: a topic without a table is not published.
func MakeTable(url, topic string) error {
	s, err := NewSubscriber(url, "")
	if err != nil {
		return err
	}
	return errors.Join(s.(subscriber).Subscriber.(*sql.Subscriber).SubscribeInitialize(topic), s.Close())
}

// region classify

// Classify judges errors of the publisher, for outbox.Config.
func Classify(err error) eventstore.FailureKind {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, sql.ErrInvalidTopicName):
		return eventstore.Permanent
	case !errors.As(err, &pg):
		return eventstore.Environment // no connection
	}
	switch class := pg.Code[:2]; {
	case class == "22", class == "23", class == "54": // the value, a constraint, or a limit of the program
		return eventstore.Permanent
	case pg.Code == "42P01": // the topic has no table
		return eventstore.Permanent
	case class == "40": // rolled back for another's sake
		return eventstore.Transient
	}
	return eventstore.Environment // shutting down, read only, full, rights, …
}

// endregion
