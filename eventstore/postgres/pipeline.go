package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// pipeline sends statements in one round trip, in one implicit transaction.
//
// Its statements are either unnamed or prepared. Unnamed ones are planned with the values of their parameters, so that
// ranges of the log that the values rule out are not even locked; prepared ones keep their plan, which saves half the
// time of a small read but locks every range. A log of few ranges is read by prepared statements.
type pipeline struct {
	statements []statement
	types      *pgtype.Map
}

type statement struct {
	sql  string
	args []any // of type int64, int, string or []string
	read func(pgx.Rows) error
}

func newPipeline() *pipeline { return &pipeline{types: pgtype.NewMap()} }

// add queues a statement with parameters of type int64, int, string or []string. read may be nil.
func (p *pipeline) add(sql string, read func(pgx.Rows) error, args ...any) {
	if read == nil {
		read = func(rows pgx.Rows) error {
			rows.Close()
			return rows.Err()
		}
	}
	p.statements = append(p.statements, statement{sql, args, read})
}

// run sends everything on a connection of the store's own and reads every result; the first error is returned.
func (s *Store) run(ctx context.Context, p *pipeline) error {
	err := s.runOnce(ctx, p)
	if s.renewed(err) {
		err = s.runOnce(ctx, p)
	}
	return err
}

func (s *Store) runOnce(ctx context.Context, p *pipeline) error {
	if s.ranges.many() || s.cfg.TransactionPooler {
		return s.pool.with(ctx, func(conn *pgx.Conn) error { return p.unnamed(ctx, conn) })
	}
	b := &pgx.Batch{}
	for _, st := range p.statements {
		b.Queue(st.sql, st.args...).Query(st.read)
	}
	return s.pool.SendBatch(ctx, b).Close()
}

func (p *pipeline) unnamed(ctx context.Context, conn *pgx.Conn) (err error) {
	batch := &pgconn.Batch{}
	for _, st := range p.statements {
		values, oids, err := p.encode(st.args)
		if err != nil {
			return err
		}
		batch.ExecParams(st.sql, values, oids, nil, []int16{pgtype.BinaryFormatCode})
	}
	results := conn.PgConn().ExecBatch(ctx, batch)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	for _, st := range p.statements {
		if !results.NextResult() {
			return results.Close()
		}
		rows := pgx.RowsFromResultReader(conn.TypeMap(), results.ResultReader())
		err := st.read(rows)
		rows.Close()
		if err := errors.Join(err, rows.Err()); err != nil {
			return err
		}
	}
	return nil
}

func (p *pipeline) encode(args []any) (values [][]byte, oids []uint32, err error) {
	values, oids = make([][]byte, len(args)), make([]uint32, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case int64:
			values[i], oids[i] = strconv.AppendInt(nil, v, 10), pgtype.Int8OID
		case int:
			values[i], oids[i] = strconv.AppendInt(nil, int64(v), 10), pgtype.Int8OID
		case string:
			values[i], oids[i] = []byte(v), pgtype.TextOID
		case []string:
			if values[i], err = p.types.Encode(pgtype.TextArrayOID, pgtype.TextFormatCode, v, []byte{}); err != nil {
				return nil, nil, err
			}
			oids[i] = pgtype.TextArrayOID
		default:
			return nil, nil, fmt.Errorf("postgres: pipeline: parameter of type %T", arg)
		}
	}
	return values, oids, nil
}
