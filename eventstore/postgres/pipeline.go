package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pipeline sends statements in one round trip, in one implicit transaction, unnamed: PostgreSQL plans them with the
// values of their parameters, so that ranges of the log that the values rule out are not even locked. pgx's own batches
// prepare what they send.
type pipeline struct {
	batch pgconn.Batch
	reads []func(pgx.Rows) error
	types *pgtype.Map
	err   error
}

func newPipeline() *pipeline { return &pipeline{types: pgtype.NewMap()} }

// add queues a statement with parameters of type int64, int, string or []string. read may be nil.
func (p *pipeline) add(sql string, read func(pgx.Rows) error, args ...any) {
	values, oids := make([][]byte, len(args)), make([]uint32, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case int64:
			values[i], oids[i] = strconv.AppendInt(nil, v, 10), pgtype.Int8OID
		case int:
			values[i], oids[i] = strconv.AppendInt(nil, int64(v), 10), pgtype.Int8OID
		case string:
			values[i], oids[i] = []byte(v), pgtype.TextOID
		case []string:
			text, err := p.types.Encode(pgtype.TextArrayOID, pgtype.TextFormatCode, v, []byte{})
			if err != nil {
				p.err = err
			}
			values[i], oids[i] = text, pgtype.TextArrayOID
		default:
			p.err = fmt.Errorf("postgres: pipeline: parameter of type %T", arg)
		}
	}
	p.batch.ExecParams(sql, values, oids, nil, []int16{pgtype.BinaryFormatCode})
	p.reads = append(p.reads, read)
}

// run sends everything and reads every result; the first error is returned.
func (p *pipeline) run(ctx context.Context, pool *pgxpool.Pool) error {
	if p.err != nil {
		return p.err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return p.runOn(ctx, conn.Conn())
}

func (p *pipeline) runOn(ctx context.Context, conn *pgx.Conn) (err error) {
	results := conn.PgConn().ExecBatch(ctx, &p.batch)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	for _, read := range p.reads {
		if !results.NextResult() {
			return results.Close()
		}
		if read == nil {
			if _, err := results.ResultReader().Close(); err != nil {
				return err
			}
			continue
		}
		rows := pgx.RowsFromResultReader(conn.TypeMap(), results.ResultReader())
		if err := read(rows); err != nil {
			rows.Close()
			return err
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}
