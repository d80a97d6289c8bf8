package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/timers"
)

// Manager runs sagas: it follows the events that concern them, sends their commands, takes what became of those, lets due
// timers fire, and carries out what operators decide. Any number of processes may run the same sagas: one of them takes the
// events of each, one its replies, and all of them fire timers; the others wait to take over. No transition happens twice.
//
// What an event brings about is committed in one transaction: the state of the instances and their history, the commands,
// the timers, and the place in the log. An event at which a definition fails sets its sequence aside, which are the events
// with its partition key, and everything else goes on, as with a projection; it is a letter for package outbox/deadletter. A
// timer at which it fails is tried again with pauses, and then its instance is stuck.
//
// A Manager is safe for concurrent use, but Run only once at a time.
type Manager struct {
	pool    *pgxpool.Pool
	cfg     Config
	schema  string
	units   []*unit
	runners []*timers.Runner // beside units; nil for reactors
	running atomic.Bool
	db      *pgxpool.Pool // of Run: timers and keepers
	keepers atomic.Pointer[[]*keeper]
}

// NewManager checks definitions and configuration; it does not touch the database. Several versions of one saga may be
// passed: new instances begin with the highest, and each keeps its own. They are of one kind, a [Process] or a [Flow]; the
// type of the state may differ, for what is stored is read by the version that it was stored by. The manager opens connections of its own with pool's
// settings while it runs: five at most for each saga, and four more.
//
// source is the log of the store or what is published of it. A saga that has never run begins where the source does: with
// all that was ever stored, unless it is a subscription that starts at its head. sender is commands.ForSagas. The errors of
// all faults are joined; those of definitions are [*DefinitionError].
func NewManager(pool *pgxpool.Pool, source Source, sender Sender, cfg Config, definitions ...Definition) (*Manager, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("saga: new manager: "+format, args...))
	}
	if pool == nil {
		fault("pool is nil: pass the pool of the store's database")
	}
	if source == nil {
		fault("source is nil: pass the store's Log, or an outbox.Subscription")
	}
	if sender == nil {
		fault("sender is nil: pass what commands.ForSagas returns")
	}
	if len(definitions) == 0 {
		fault("there are no definitions: pass at least one")
	}
	if err := cfg.validate(); err != nil {
		fault("%w", err)
	}
	units, err := unitsOf(definitions)
	faults = append(faults, err, checkSends(sender, definitions))
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	m := &Manager{pool: pool, cfg: cfg.withDefaults(), schema: sender.Schema(), units: units}
	for _, u := range units {
		if err := m.equip(u, source, sender); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// unitsOf sorts definitions by saga.
func unitsOf(definitions []Definition) ([]*unit, error) {
	var faults []error
	var units []*unit
	byName := map[string]*unit{}
	for i, d := range definitions {
		if d == nil {
			faults = append(faults, fmt.Errorf("saga: new manager: definition %d is nil: pass what Define, After and NewReactor return", i+1))
			continue
		}
		parts, err := d.Parts()
		if err != nil {
			faults = append(faults, err)
			continue
		}
		u := byName[d.Name()]
		if u == nil {
			u = &unit{name: d.Name(), machines: map[int]flow.Machine{}, reads: map[int][]string{}, kick: make(chan struct{}, 1)}
			byName[d.Name()] = u
			units = append(units, u)
		} else if u.reactor != nil || parts.Reactor != nil || u.machines[d.Version()] != nil {
			faults = append(faults, &DefinitionError{
				Saga: d.Name(), Version: d.Version(), Reason: "another definition here has its name and version", Remedy: "give each its own",
			})
			continue
		} else if u.newest.Kind() != parts.Machine.Kind() {
			faults = append(faults, &DefinitionError{
				Saga: d.Name(), Version: d.Version(), Remedy: "give one of them another name: versions may change the type of the state, not the kind",
				Reason: fmt.Sprintf("it is of kind %q, and version %d of kind %q", parts.Machine.Kind(), u.newest.Version(), u.newest.Kind()),
			})
			continue
		}
		if parts.Reactor != nil {
			u.reactor, u.types = parts.Reactor, parts.Reactor.Types()
			continue
		}
		m := parts.Machine
		u.machines[m.Version()], u.reads[m.Version()] = m, m.Types()
		if u.newest == nil || u.newest.Version() < m.Version() {
			u.newest = m
		}
		u.types = append(u.types, m.Types()...)
		slices.Sort(u.types)
		u.types = slices.Compact(u.types)
	}
	return units, errors.Join(faults...)
}

// equip gives a saga what it works with.
func (m *Manager) equip(u *unit, source Source, sender Sender) error {
	u.cfg, u.schema, u.sender, u.sql = m.cfg, m.schema, sender, newStatements(m.schema)
	u.log, u.policy, u.settings = m.cfg.Logger.With("saga", u.name), m.cfg.policy(), settingsSQL(m.cfg.Lease)
	u.wakeTimers = func() {}
	told, decode, err := sender.Replies(u.name)
	if err != nil {
		return fmt.Errorf("saga: new manager: replies of %q: %w", u.name, err)
	}
	u.settlement.reads(m.schema, source, told)
	inner := m.cfg.inner(u.name)
	ref := func(name string) consumer.Ref {
		return consumer.Ref{Store: m.schema, Name: name, Version: consumerVersion}
	}
	u.worker = func() *consumer.Worker {
		return consumer.New(consumer.Spec{Ref: ref(consumerName(u.name)), Select: u.filter, Applier: eventApplier{u}, Abstains: u.outdated}, source, inner)
	}
	u.events.Store(u.worker())
	u.replies = consumer.New(consumer.Spec{Ref: ref(repliesName(u.name)), Applier: replyApplier{u, decode}}, told, inner)
	if u.reactor != nil {
		m.runners = append(m.runners, nil)
		return nil
	}
	runner, err := u.newTimers(func() *pgxpool.Pool { return m.db })
	if err != nil {
		return fmt.Errorf("saga: new manager: %w", err)
	}
	u.wakeTimers = runner.Wake
	m.runners = append(m.runners, runner)
	return nil
}

// Run works until ctx ends, and then returns nil within two seconds: what is in hand may finish for one second. It returns
// at once with a [*NotInstalledError] for each saga that is not registered or whose tables are missing, and with an error
// that names definitions that do not return when the end is asked for. A database that is away is waited for.
func (m *Manager) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return errors.New("saga: run: the manager runs already: make another Manager, or call Run once")
	}
	defer m.running.Store(false)
	db, err := consumer.Pool(context.WithoutCancel(ctx), m.pool, 2*len(m.units))
	if err != nil {
		return fmt.Errorf("saga: run: %w", err)
	}
	if err := consumer.Patiently(ctx, func(ctx context.Context) error { return m.check(ctx, db) }); err != nil {
		db.Close()
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if m.db, err = consumer.Pool(context.WithoutCancel(ctx), m.pool, (timerWorkers+1)*len(m.units)); err != nil {
		db.Close()
		return fmt.Errorf("saga: run: %w", err)
	}
	var workers []*consumer.Worker
	for _, u := range m.units {
		u.events.Store(u.worker())
		workers = append(workers, u.events.Load(), u.replies)
	}
	return m.runAll(ctx, db, workers)
}

// check looks whether all sagas can run, and tells the store which versions are here.
func (m *Manager) check(ctx context.Context, db *pgxpool.Pool) error {
	var faults []error
	for _, u := range m.units {
		err := check(ctx, db, m.schema, u.name)
		if err == nil && u.reactor == nil {
			err = enrol(ctx, db, m.schema, u.name, u.newest.Version(), u.types)
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// runAll runs everything beside the consumers on connections of its own, which are closed when all of it has ended.
func (m *Manager) runAll(ctx context.Context, db *pgxpool.Pool, workers []*consumer.Worker) error {
	var all sync.WaitGroup
	errs := make([]error, len(m.units))
	keepers := make([]*keeper, len(m.units))
	for n, u := range m.units {
		keepers[n] = &keeper{u: u, db: m.db, failed: map[place]*failing{}}
		all.Go(func() { keepers[n].run(ctx) })
		if r := m.runners[n]; r != nil {
			all.Go(func() { errs[n] = r.Run(ctx, m.db) })
		}
	}
	m.keepers.Store(&keepers)
	defer m.keepers.Store(nil)
	err := consumer.Run(ctx, db, workers...)
	all.Wait()
	err = errors.Join(append(errs, err)...)
	if err == nil {
		m.db.Close()
	} else { // a definition that ignores the end of its context may hold a connection for as long as it likes
		go m.db.Close()
	}
	if err != nil {
		return fmt.Errorf("saga: run: %w", err)
	}
	return nil
}
