package outbox_test

import (
	"cmp"
	"slices"
)

// The store of the model: everything that one database holds and that a restore takes back together. Its readers' pages
// and its cleaning are here.

type modelStore struct {
	modelLog
	rules   modelRules
	epoch   int
	cleaned int64 // sent and passed messages at or below it may be gone
	relay   modelRelayRow
	groups  []*modelGroup
	// pause is called between two statements of one reader: others get a turn.
	pause func()
}

// modelRelayRow is the relay's place: who may move it, what is sent, and the last message of each chain.
type modelRelayRow struct {
	fence  int
	cursor int64
	tails  modelChains
	rev    int          // raised by whoever else changes what is set aside
	aside  []modelAside // committed with the cursor
}

// modelGroup is a consumer's side of the store: what is committed. Effects and places move together.
type modelGroup struct {
	name       string
	topic      int
	registered bool
	lost       bool  // declared lost: cleaning waits for it no longer
	excused    int64 // cleaned before it registered, which it has to know
	start      int64 // StartAt: it never asked for anything at or below it
	applied    [modelPartitions]int64
	effects    []modelMessage
	gaps       []modelGap
}

// modelGap is what the owner of a lost group has settled by other means: it knows that these never come.
type modelGap struct {
	partition   int
	after, upTo int64
}

func (g *modelGroup) floor() int64 { return slices.Min(g.applied[:]) }

type modelQuery struct {
	topic, partition int // modelAny: all
	after, upTo      int64
	rows, limit      int
}

type modelPage struct {
	messages []modelMessage
	through  int64 // the page is complete up to here
	cleaned  int64
}

// page reads messages by position, looking at a bounded number of rows.
func (s *modelStore) page(q modelQuery) modelPage {
	if q.upTo == 0 {
		q.upTo = max(q.after, s.safe(s.rules))
	}
	page := modelPage{cleaned: s.cleaned}
	s.pause()
	rows, through := s.openRows(q)
	page.through = through
	for _, r := range rows {
		page.messages = append(page.messages, s.expand(r, q.after, through)...)
	}
	if !s.rules.rowByRow {
		slices.SortFunc(page.messages, func(a, b modelMessage) int {
			return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.topic, b.topic))
		})
	}
	if n := q.limit; n < len(page.messages) {
		page.through = page.messages[n-1].position
		for !s.rules.tiesCut && n < len(page.messages) && page.messages[n].position == page.through {
			n++
		}
		page.messages = page.messages[:n]
	}
	s.pause()
	if !s.rules.cleanedReadFirst {
		page.cleaned = s.cleaned
	}
	return page
}

// openRows returns the rows of a page and how far they are complete. Those that are open at the cursor begin in its block
// and are taken whatever their number; of those that begin beyond it as many as the page may hold, and those that begin
// at the same position as the last of them. Where the next one begins, the page ends.
func (s *modelStore) openRows(q modelQuery) ([]modelRow, int64) {
	block := q.after / modelBlock * modelBlock
	if s.rules.openForgotten {
		block = q.after + 1
	}
	var rows []modelRow
	var furthest int64
	beyond := 0
	for _, r := range s.rows {
		switch {
		case r.first < block || r.last <= q.after || r.first > q.upTo:
			continue
		case q.topic != modelAny && r.topic != q.topic, q.partition != modelAny && r.partition != q.partition:
			continue
		}
		counts := r.first > q.after || s.rules.openCounted
		if counts && beyond >= q.rows && (r.first > rows[len(rows)-1].first || s.rules.openCounted) {
			end := r.first - 1
			if s.rules.pageNotCut {
				end = min(furthest, q.upTo)
			}
			return rows, max(end, q.after)
		}
		if counts {
			beyond++
		}
		rows, furthest = append(rows, r), max(furthest, r.last)
	}
	return rows, q.upTo
}

func (s *modelStore) expand(r modelRow, after, upTo int64) []modelMessage {
	if r.own != 0 {
		if r.first <= after || r.first > upTo {
			return nil
		}
		return []modelMessage{{r.first, r.own, r.topic, r.partition, r.stream}}
	}
	var messages []modelMessage
	for _, e := range s.streams[r.stream][r.from-1 : r.to] {
		if e.position > after && e.position <= upTo {
			messages = append(messages, modelMessage{e.position, e.content, r.topic, r.partition, r.stream})
		}
	}
	return messages
}

// mayGo is the position that the relay has sent and every following group has passed.
func (s *modelStore) mayGo() int64 {
	least := s.relay.cursor
	for _, g := range s.groups {
		if g.registered && !g.lost && !s.rules.droppedOnceSent {
			least = min(least, g.floor())
		}
	}
	for _, a := range s.relay.aside {
		if !s.rules.asideCleaned {
			least = min(least, a.needed())
		}
	}
	return least
}

// raiseCleaned and dropRows are transactions of their own, in this order: who misses a row then also sees why.
func (s *modelStore) raiseCleaned() { s.cleaned = max(s.cleaned, s.mayGo()) }

func (s *modelStore) dropRows() {
	upTo := s.cleaned
	if s.rules.droppedBeforeRaised {
		upTo = max(upTo, s.mayGo())
	}
	last := len(s.rows) - 1 // stays, so that the highest position does not fall
	s.rows = slices.DeleteFunc(slices.Clone(s.rows), func(r modelRow) bool { return r.last <= upTo && r != s.rows[last] })
}

// declareLost gives up the groups that are further behind than the retention.
func (s *modelStore) declareLost(retention int64) {
	for _, g := range s.groups {
		if g.registered && g.floor()+retention < s.relay.cursor {
			g.lost = true
		}
	}
}

// register makes the group one that cleaning waits for (again).
func (s *modelStore) register(g *modelGroup) {
	g.registered, g.lost, g.excused = true, false, s.cleaned
}

// clone is a backup: everything that is committed.
func (s *modelStore) clone() *modelStore {
	c := *s
	c.modelLog = s.modelLog.clone()
	c.groups = nil
	c.relay.aside = slices.Clone(s.relay.aside)
	for _, g := range s.groups {
		copied := *g
		copied.effects, copied.gaps = slices.Clone(g.effects), slices.Clone(g.gaps)
		c.groups = append(c.groups, &copied)
	}
	return &c
}
