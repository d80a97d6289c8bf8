package outbox_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/internal/testscale"
)

// The model is the protocol of the published stream in memory: how rows are written and read (model_log, model_store), how
// they are published (model_relay, model_broker), how they are applied (model_consumer), and what can happen meanwhile
// (model_run, model_openings). The rules are named in model_rules; model_truth says what right is. The rule of the chain is
// the product's own, judge.

var modelSeed = flag.Uint64("model.seed", 0, "replay the model's run of this seed only, and show all of it if it goes wrong")

// modelSeeds are those of a test of so many runs at full size, and of so few at the usual scale, or the one that is to be
// replayed. They are the same in each run of the test.
func modelSeeds(runs, few int) []uint64 {
	if *modelSeed != 0 {
		return []uint64{*modelSeed}
	}
	n := testscale.N(runs)
	if testscale.Factor() < 1 {
		n = few
	}
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = uint64(i + 1)
	}
	return seeds
}

func modelRunOf(seed uint64, rules modelRules, world modelWorld, loud bool) *modelRun {
	r := newModelRun(seed, rules, world, loud)
	r.run()
	return r
}

// replay shows what led to the faults of a run.
func replay(t *testing.T, seed uint64, rules modelRules, world modelWorld) {
	t.Helper()
	r := modelRunOf(seed, rules, world, true)
	shown := r.trace
	if *modelSeed == 0 {
		shown = shown[max(0, len(shown)-40):]
	}
	t.Logf("seed %d: %v; it ended with\n\t%s\nall of it: go test ./outbox -v -run '^%s$' -model.seed %d",
		seed, r.faults, strings.Join(shown, "\n\t"), t.Name(), seed)
}

// TestModel: with all rules nothing is lost, doubled or reordered, whatever happens.
func TestModel(t *testing.T) {
	t.Parallel()
	modelHolds(t, usualWorld)
}

// TestModelRefused: nor when the broker refuses messages, and takes them later or never.
func TestModelRefused(t *testing.T) {
	t.Parallel()
	modelHolds(t, refusedWorld)
}

func modelHolds(t *testing.T, world modelWorld) {
	t.Helper()
	runs, messages, fills, redriven, wrong := 0, 0, 0, 0, 0
	for _, seed := range modelSeeds(10_000, 300) {
		r := modelRunOf(seed, modelRules{}, world, false)
		runs, messages, fills, redriven = runs+1, messages+len(r.store.written), fills+r.fills, redriven+r.redriven
		if r.faults.none() {
			continue
		}
		t.Errorf("seed %d: %v", seed, r.faults)
		replay(t, seed, modelRules{}, world)
		if wrong++; wrong == 3 {
			break
		}
	}
	each := func(n int) float64 { return float64(n) / float64(runs) }
	t.Logf("%d runs, %.0f messages, %.1f fills and %.1f redriven each", runs, each(messages), each(fills), each(redriven))
}

// TestModelRules: the model notices every rule that is left out, but those that only save work.
func TestModelRules(t *testing.T) {
	t.Parallel()
	for _, v := range modelVariants() {
		t.Run(v.name, func(t *testing.T) {
			few := 40
			if v.least > 0 { // ten of them must go wrong, if they are not too many
				few = min(max(20, 1000/v.least), 100)
			}
			seeds := modelSeeds(1_000, few)
			enough := float64(v.least*len(seeds)) / 100
			var rules modelRules
			v.leave(&rules)
			var sum modelFaults
			wrong, fills := 0, 0
			runs := 0
			for _, seed := range seeds {
				if v.least > 0 && float64(wrong) >= enough && testscale.Factor() < 1 {
					break // whatever the others are, it is the share of all that is wanted
				}
				r := modelRunOf(seed, rules, v.world, false)
				runs, fills = runs+1, fills+r.fills
				if r.faults.none() {
					continue
				}
				wrong++
				sum.add(r.faults)
				if v.least == 0 && wrong <= 3 {
					t.Errorf("seed %d: %v", seed, r.faults)
				}
				if v.least == 0 && wrong <= 3 || *modelSeed != 0 {
					replay(t, seed, rules, v.world)
				}
			}
			t.Logf("%5.1f %% of %d runs (%v), %.1f fills each: %s", 100*float64(wrong)/float64(runs), runs, sum, float64(fills)/float64(runs), v.name)
			if float64(wrong) < enough && *modelSeed == 0 {
				t.Errorf("only %d of %d runs notice it, want %d %%", wrong, runs, v.least)
			}
		})
	}
}

// TestModelRulesKept: in each world of the table nothing goes wrong with all rules, so that what goes wrong there is due to
// the one that is left out.
func TestModelRulesKept(t *testing.T) {
	t.Parallel()
	for name, world := range map[string]modelWorld{
		"restored": restoredWorld, "taken": takenWorld, "frozen": frozenWorld, "late": lateWorld, "cleaned": cleanedWorld, "refused": refusedWorld,
		"refused, and taken over": lateRefusals,
	} {
		t.Run(name, func(t *testing.T) {
			for _, seed := range modelSeeds(1_000, 40) {
				if r := modelRunOf(seed, modelRules{}, world, false); !r.faults.none() {
					replay(t, seed, modelRules{}, world)
					t.Fatalf("seed %d: %v", seed, r.faults)
				}
			}
		})
	}
}

// TestModelKey: the chain needs the partition as the broker's key. With it a perfect broker leaves no hole; with the
// stream as key the messages of a partition overtake each other, and each time the consumer asks the store.
func TestModelKey(t *testing.T) {
	t.Parallel()
	seeds := modelSeeds(1_000, 40)
	fills := func(rules modelRules) float64 {
		sum := 0
		for _, seed := range seeds {
			r := modelRunOf(seed, rules, modelWorld{perfect: true}, false)
			if !r.faults.none() {
				replay(t, seed, rules, modelWorld{perfect: true})
				t.Errorf("seed %d: %v", seed, r.faults)
			}
			sum += r.fills
		}
		return float64(sum) / float64(len(seeds))
	}
	partition, stream := fills(modelRules{}), fills(modelRules{keyIsStream: true})
	t.Logf("fills a run: %.1f with the partition as key, %.1f with the stream", partition, stream)
	if partition != 0 {
		t.Errorf("%.1f fills a run with the partition as key, want none", partition)
	}
	if stream < 20 && *modelSeed == 0 {
		t.Errorf("only %.1f fills a run with the stream as key", stream)
	}
}
