package deadletter

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// ConsumerStatus is what is set aside of one consumer and version: the numbers for a gauge.
type ConsumerStatus struct {
	Consumer string `json:"consumer"`
	Version  int    `json:"version"`
	// Retrying sequences are tried again in their own time, Parked ones wait for people, Draining ones go on with what was
	// queued.
	Retrying int64 `json:"retrying"`
	Parked   int64 `json:"parked"`
	Draining int64 `json:"draining"`
	// Queued is how many messages are known behind those that failed.
	Queued int64 `json:"queued"`
	// Oldest is since when the first of its sequences is set aside, OldestParked the first that waits for people; zero
	// when there is none.
	Oldest       time.Time `json:"oldest,omitzero"`
	OldestParked time.Time `json:"oldest_parked,omitzero"`
	// Plans is how many plans are running.
	Plans int `json:"plans"`
}

// Status returns the consumers of which something is set aside or being tried again. Its statement is bounded by the
// number of sequences that are set aside, not of letters; an answer is given again for as long as Config.Fresh says, so
// that it may be called at each scrape. The caller must not change what it gets.
func (l *Letters) Status(ctx context.Context) ([]ConsumerStatus, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.asked.IsZero() && time.Since(l.asked) < l.cfg.Fresh {
		return l.status, nil
	}
	var status []ConsumerStatus
	err := l.read(ctx, "status", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, l.sql(statusSQL))
		if err != nil {
			return err
		}
		status, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (ConsumerStatus, error) {
			var s ConsumerStatus
			var oldest, oldestParked *time.Time
			err := row.Scan(&s.Consumer, &s.Version, &s.Retrying, &s.Parked, &s.Draining, &s.Queued, &oldest, &oldestParked, &s.Plans)
			if oldest != nil {
				s.Oldest = oldest.UTC()
			}
			if oldestParked != nil {
				s.OldestParked = oldestParked.UTC()
			}
			return s, err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	l.status, l.asked = status, time.Now()
	return status, nil
}

const statusSQL = `
SELECT consumer, version, coalesce(p.retrying, 0), coalesce(p.parked, 0), coalesce(p.draining, 0), coalesce(p.queued, 0)::bigint,
       p.oldest, p.oldest_parked, coalesce(r.n, 0)
  FROM (SELECT consumer, version, count(*) FILTER (WHERE state = 'retrying') AS retrying, count(*) FILTER (WHERE state = 'parked') AS parked,
               count(*) FILTER (WHERE state = 'draining') AS draining, sum(queued) AS queued,
               min(since) AS oldest, min(since) FILTER (WHERE state = 'parked') AS oldest_parked
          FROM {schema}.parked GROUP BY consumer, version) p
  FULL JOIN (SELECT consumer, version, count(*)::int AS n FROM {schema}.redrives WHERE state = 'running' GROUP BY consumer, version) r
       USING (consumer, version)
 ORDER BY consumer, version`

// Health is for alarms: it is not ready when a sequence has waited for people for longer than Config.AlarmAfter. Do not
// make a process unready for requests by it: the other keys go on, and no other process would do better. It asks the
// database as [Letters.Status] does, and ends with ctx.
func (l *Letters) Health(ctx context.Context) eventstore.Health {
	h := eventstore.Health{Component: "dead letters", Ready: true, State: "ok"}
	status, err := l.Status(ctx)
	if err != nil {
		h.Ready, h.State, h.Reason = false, "unreachable", err.Error()
		return h
	}
	for _, s := range status {
		part := eventstore.Health{
			Component: fmt.Sprintf("dead letters of %s v%d", s.Consumer, s.Version), Ready: true, State: "ok", Since: s.Oldest,
		}
		if s.Retrying+s.Draining > 0 {
			part.State = "retrying"
		}
		if s.Parked > 0 {
			part.State, part.Since = "parked", s.OldestParked
			part.Reason = fmt.Sprintf("%d sequences wait for people, the first since %s: see `daybook deadletter groups`",
				s.Parked, s.OldestParked.Format(time.RFC3339))
			part.Ready = l.cfg.AlarmAfter < 0 || time.Since(s.OldestParked) < l.cfg.AlarmAfter
		}
		h.Parts = append(h.Parts, part)
	}
	var reasons []string
	for _, p := range h.Parts {
		if p.Ready {
			continue
		}
		if h.Ready || p.Since.Before(h.Since) {
			h.Since = p.Since
		}
		h.Ready, h.State = false, p.State
		reasons = append(reasons, strings.TrimPrefix(p.Component, "dead letters of ")+": "+p.Reason)
	}
	h.Reason = strings.Join(reasons, "; ")
	return h
}
