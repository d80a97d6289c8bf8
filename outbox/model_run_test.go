package outbox_test

import (
	"fmt"
	"math/rand/v2"
)

// One run of the model: a schedule of everything that can happen, drawn from a seed. Nothing runs at the same time; the
// order of the steps is what concurrency would have made of them.

const (
	modelSteps = 900 // with new appends; afterwards everything comes to rest
)

type modelRun struct {
	rng   *rand.Rand
	rules modelRules
	world modelWorld
	loud  bool // trace

	store, backup *modelStore
	backupAt      int
	restoreAt     int // never, if 0
	epochs        int
	contents      int64
	relays        []*modelRelay
	broker        *modelBroker
	consumers     []*modelConsumer
	inboxes       []*modelInbox
	bad           map[int64]bool // contents that the broker refuses
	discarded     map[int64]bool // contents that somebody has given up

	fills    int
	redriven int
	faults   modelFaults
	trace    []string
}

func (r *modelRun) random(n int) int        { return r.rng.IntN(n) }
func (r *modelRun) chance(percent int) bool { return r.rng.IntN(100) < percent }
func (r *modelRun) note(f string, a ...any) {
	if r.loud {
		r.trace = append(r.trace, fmt.Sprintf(f, a...))
	}
}

// newModelRun sets the scene: two relays, a broker, and two groups for each topic, one of which comes later.
func newModelRun(seed uint64, rules modelRules, world modelWorld, loud bool) *modelRun {
	r := &modelRun{rng: rand.New(rand.NewPCG(seed, 1)), rules: rules, world: world, loud: loud}
	r.store = &modelStore{rules: rules, pause: r.pause}
	r.store.routes = [modelTopics]modelRoute{modelEverything: 1<<modelKinds - 1, modelChosen: 0b0110}
	r.broker = &modelBroker{run: r, queues: map[string]*[modelBrokerPartitions][]modelEnvelope{}}
	r.relays = []*modelRelay{{run: r, name: "relay 1"}, {run: r, name: "relay 2"}}
	later := func() int {
		if r.world.perfect {
			return 0
		}
		return r.random(modelSteps)
	}
	r.consumers = []*modelConsumer{
		{group: "balances", topic: modelEverything},
		{group: "reports", topic: modelEverything, begins: later()},
		{group: "search", topic: modelChosen},
		{group: "audit", topic: modelChosen, begins: later(), atHead: !r.world.perfect},
	}
	for _, c := range r.consumers {
		c.run = r
		r.store.groups = append(r.store.groups, &modelGroup{name: c.group, topic: c.topic})
	}
	r.bad, r.discarded = map[int64]bool{}, map[int64]bool{}
	r.backupAt = r.random(modelSteps / 2)
	if r.chance(world.restores) {
		r.restoreAt = r.backupAt + 1 + r.random(modelSteps/3)
	}
	if r.world.refuses > 0 {
		r.inboxes = []*modelInbox{newModelInbox(r, "mail", modelEverything), newModelInbox(r, "stock", modelChosen)}
	}
	return r
}

func (r *modelRun) run() {
	if r.world.opening != nil {
		r.world.opening(r)
	}
	for step := range modelSteps {
		for _, c := range r.consumers {
			if step == c.begins {
				c.start()
			}
		}
		if step == r.backupAt {
			r.backup = r.store.clone()
			r.note("backup at %d", r.store.highest)
		}
		if step == r.restoreAt && step > 0 {
			r.restore()
		}
		r.step(step)
	}
	r.rest()
	r.faults.count(r)
}

func (r *modelRun) step(step int) {
	if !r.world.perfect {
		r.disturb(step)
	}
	switch n := r.random(100); {
	case n < 30:
		r.append()
	case n < 50:
		r.relays[r.random(len(r.relays))].step()
	case n < 70 && len(r.inboxes) > 0:
		r.inboxes[r.random(len(r.inboxes))].step()
	default:
		r.consumers[r.random(len(r.consumers))].step()
	}
	if r.world.perfect || r.chance(5) {
		r.relays[0].lead()
	}
}

// disturb is what goes wrong, or changes, beside the work.
func (r *modelRun) disturb(step int) {
	if r.chance(r.world.disturbs) {
		r.disturbRelay()
	}
	if r.chance(r.world.cleans) {
		r.clean()
	}
	if r.world.refuses > 0 {
		r.operate()
	}
	switch n := r.random(1000); {
	case n < 10:
		c := r.consumers[r.random(len(r.consumers))]
		switch {
		case step < c.begins:
		case c.up:
			c.crash()
		default:
			c.start()
		}
	case n < 15:
		r.broker.dead = !r.broker.dead && r.chance(50)
	case n < 25:
		r.store.routes[modelChosen] = modelRoute(r.random(1 << modelKinds))
		r.note("the route is %04b now", r.store.routes[modelChosen])
	}
}

// append lets a transaction begin, draw a position, commit or roll back.
func (r *modelRun) append() {
	store := r.store
	if len(store.open) == 0 || len(store.open) < 4 && r.chance(20) {
		store.begin(r.random(modelStreams), []int{0, 1, 3, 3, 3}[r.random(5)], r.random(4)/2)
		return
	}
	a := store.open[r.random(len(store.open))]
	switch {
	case r.chance(2):
		store.end(a)
	case store.draw(a, r.contents+1, r.random(modelKinds)):
		r.contents++
		if r.world.refuses > 0 && r.chance(r.world.refuses) {
			r.bad[r.contents] = true
		}
	case r.chance(50):
		store.commit(a, r.rules)
		r.note("committed: stream %d, events %v, own %v", a.stream, a.drawn, a.own)
	}
}

func (r *modelRun) disturbRelay() {
	relay := r.relays[r.random(len(r.relays))]
	switch n := r.random(10); {
	case relay.frozen:
		if n < 3 {
			relay.frozen = false
		}
	case n < 5:
		relay.take()
	case n < 7:
		relay.crash()
	case relay.owner:
		relay.frozen = true
		r.note("%s is frozen with %d in hand", relay.name, len(relay.hand))
	}
}

func (r *modelRun) clean() {
	switch n := r.random(10); {
	case n < 5:
		r.store.raiseCleaned()
	case n < 8:
		r.store.dropRows()
		r.note("dropped up to %d", r.store.cleaned)
	default:
		r.store.declareLost(r.world.retention)
	}
}

// pause is a turn of the others between two statements of a reader.
func (r *modelRun) pause() {
	if !r.world.perfect && r.chance(5*r.world.cleans) {
		for range 3 {
			r.clean()
		}
	}
}

// restore brings the database back to the backup, as a new epoch. Processes start again, but one that stands still does
// not know of it, and one that was only cut off for a while does not either.
func (r *modelRun) restore() {
	r.epochs++
	r.store = r.backup.clone()
	r.store.epoch, r.store.sequence = r.epochs, r.store.highest
	r.note("restored to %d, epoch %d", r.store.highest, r.epochs)
	for _, relay := range r.relays {
		if !relay.frozen {
			relay.crash()
		}
	}
	for _, c := range r.consumers {
		if c.up && r.chance(50) {
			c.crash()
			c.start()
		}
	}
}
