package outbox

// What the model shares with the product: the rule of the chain.

// Verdict is what the chain says about a message.
type Verdict = verdict

// The verdicts.
const (
	ChainDrop, ChainApply, ChainHole = drop, apply, hole
)

// JudgeChain is the rule of the chain.
var JudgeChain = judge
