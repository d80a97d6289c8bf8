package consumer

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// enter takes the segment, unless the worker abstains. That is asked before, so that who abstains takes it from nobody, and
// once more behind the takeover: whoever lets others abstain raises the epoch of the segment with it, so that what was
// answered behind the takeover holds until the epoch is raised. So does the filter.
func (w *Worker) enter(ctx context.Context, db *pgxpool.Pool) (l *lease, state State, why string, err error) {
	if why, err = w.abstains(ctx, db); why != "" || err != nil {
		return nil, Standby, why, err
	}
	if l, state, err = w.take(ctx, db); l == nil || err != nil {
		return nil, state, "", err
	}
	if why, err = w.abstains(ctx, db); why != "" || err != nil {
		w.release(ctx, db, l)
		return nil, Standby, why, err
	}
	l.filter = w.spec.Filter
	if w.spec.Select != nil {
		l.filter = w.spec.Select()
	}
	return l, state, "", nil
}

func (w *Worker) abstains(ctx context.Context, db *pgxpool.Pool) (why string, err error) {
	if w.spec.Abstains == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(w.cfg.Lease, takePatience))
	defer cancel()
	return w.spec.Abstains(ctx, db)
}
