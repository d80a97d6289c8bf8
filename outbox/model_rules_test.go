package outbox_test

// The rules of the stream, one by one: what happens when one is left out.

// modelWorld is what a run may meet besides the usual.
type modelWorld struct {
	perfect   bool            // nothing crashes, and the broker keeps the order of every key
	restores  int             // percent of runs in which the store goes back to a backup
	disturbs  int             // percent of steps with a takeover, a crash, a freeze or a thaw of a relay
	cleans    int             // percent of steps with a step of cleaning
	opening   func(*modelRun) // played before the rest, if not nil
	retention int64           // positions that a group may be behind before it is declared lost
	refuses   int             // percent of messages that the broker refuses until somebody mends something
}

// modelRules says which rules are left out; the zero value is the protocol.
type modelRules struct {
	// The log and its pages.
	unsafeHead      bool
	rowsCrossBlocks bool
	openForgotten   bool
	openCounted     bool
	pageNotCut      bool
	rowByRow        bool
	tiesCut         bool

	// The relay.
	previousFromPage   bool
	previousFromCursor bool
	tailsInMemory      bool
	noFence            bool
	fenceWithoutEpoch  bool
	headsBeyondSent    bool
	headIsPrevious     bool
	noHeads            bool
	relayTrustsRows    bool
	cursorFirst        bool
	keyIsStream        bool

	// The consumer.
	nothingDropped     bool
	holesIgnored       bool
	holesDropped       bool
	onlyExact          bool
	filledFromLog      bool
	startAnywhere      bool
	placesApart        bool
	silenceTrusted     bool
	noEpoch            bool
	commitWithoutEpoch bool

	// What the broker refuses.
	noMarkers                                          bool
	chainRelinked                                      bool
	asideByKey                                         bool
	asideForgotten                                     bool
	nothingQueues                                      bool
	releasedAtOnce                                     bool
	discardUntold                                      bool
	markersPassed                                      bool
	redrivenByChain, redrivenUnordered, redrivenAtOnce bool
	rowsForRedriven                                    bool
	notJoined                                          bool
	rowsApart                                          bool
	asideCleaned                                       bool

	// Cleaning.
	droppedOnceSent     bool
	droppedBeforeRaised bool
	cleanedUnread       bool
	cleanedReadFirst    bool
}

// modelVariant leaves one rule out.
type modelVariant struct {
	name  string
	leave func(*modelRules)
	world modelWorld
	// least is the percentage of runs that must go wrong; 0 means that none may: the rule saves work, not messages.
	least int
}

// usualWorld is that of the test of the whole; the others have more of what a rule is for.
var (
	usualWorld    = modelWorld{restores: 25, disturbs: 3, cleans: 2, retention: 25}
	restoredWorld = modelWorld{restores: 100, disturbs: 3, cleans: 2, retention: 25}
	takenWorld    = modelWorld{opening: (*modelRun).frozenOverTakeover, disturbs: 3, cleans: 2, retention: 25}
	lateWorld     = modelWorld{opening: (*modelRun).frozenOverCleaning, disturbs: 3, cleans: 2, retention: 25}
	frozenWorld   = modelWorld{opening: (*modelRun).frozenOverRestore, disturbs: 3, cleans: 2, retention: 25}
	cleanedWorld  = modelWorld{disturbs: 5, cleans: 12, retention: 6}
	lateRefusals  = modelWorld{refuses: 10, disturbs: 20, cleans: 4, retention: 25}
	refusedWorld  = modelWorld{refuses: 10, disturbs: 5, cleans: 4, retention: 25}
)

func modelVariants() []modelVariant {
	return []modelVariant{
		{"read up to the highest committed position", func(r *modelRules) { r.unsafeHead = true }, usualWorld, 30},
		{"rows cross the border of a block", func(r *modelRules) { r.rowsCrossBlocks = true }, usualWorld, 45},
		{"rows that begin before the cursor are forgotten", func(r *modelRules) { r.openForgotten = true }, usualWorld, 50},
		{"rows that begin before the cursor count for the page", func(r *modelRules) { r.openCounted = true }, usualWorld, 7},
		{"a page is not cut where the next row begins", func(r *modelRules) { r.pageNotCut = true }, usualWorld, 45},
		{"rows are published one by one, not by position", func(r *modelRules) { r.rowByRow = true }, usualWorld, 50},
		{"a page is cut between two topics of one position", func(r *modelRules) { r.tiesCut = true }, usualWorld, 50},

		{"previous is the cursor of the page", func(r *modelRules) { r.previousFromPage = true }, usualWorld, 50},
		{"tails are kept in memory over a takeover", func(r *modelRules) { r.tailsInMemory = true }, usualWorld, 40},
		{"no fence on cursor and tails", func(r *modelRules) { r.noFence = true }, takenWorld, 15},
		{"the fence does not know the epoch", func(r *modelRules) { r.fenceWithoutEpoch = true }, frozenWorld, 5},
		{"the relay does not look at the watermark", func(r *modelRules) { r.relayTrustsRows = true }, lateWorld, 40},
		{"heads go beyond what was sent", func(r *modelRules) { r.headsBeyondSent = true }, usualWorld, 50},

		{"repeats are applied", func(r *modelRules) { r.nothingDropped = true }, usualWorld, 50},
		{"holes are ignored: whatever is beyond applied is applied", func(r *modelRules) { r.holesIgnored = true }, usualWorld, 50},
		{"holes are filled from the log by today's routes", func(r *modelRules) { r.filledFromLog = true }, usualWorld, 50},
		{"a first start is at whatever comes first", func(r *modelRules) { r.startAnywhere = true }, usualWorld, 18},
		{"applied is committed apart from the effects", func(r *modelRules) { r.placesApart = true }, usualWorld, 30},
		{"silence is trusted", func(r *modelRules) { r.silenceTrusted = true }, usualWorld, 25},
		{"messages do not say their epoch", func(r *modelRules) { r.noEpoch = true }, restoredWorld, 20},
		{"a consumer's commit does not know the epoch", func(r *modelRules) { r.commitWithoutEpoch = true }, restoredWorld, 3},

		{"nothing is published in the place of a refused message", func(r *modelRules) { r.noMarkers = true }, refusedWorld, 50},
		{"the chain is linked past a refused message", func(r *modelRules) { r.chainRelinked = true }, refusedWorld, 50},
		{"a consumer with the store passes markers by", func(r *modelRules) { r.markersPassed = true }, refusedWorld, 50},
		{"what is set aside is not committed with the cursor", func(r *modelRules) { r.asideForgotten = true }, refusedWorld, 40},
		{"a sequence is released before what queues is redriven", func(r *modelRules) { r.releasedAtOnce = true }, refusedWorld, 40},
		{"nobody is told of what is discarded", func(r *modelRules) { r.discardUntold = true }, refusedWorld, 20},
		{"a redriven message is judged by the chain", func(r *modelRules) { r.redrivenByChain = true }, refusedWorld, 50},
		{"a redriven message is applied before the lowest of its key", func(r *modelRules) { r.redrivenUnordered = true }, refusedWorld, 20},
		{"a redriven message beyond the chain is applied", func(r *modelRules) { r.redrivenAtOnce = true }, refusedWorld, 20},
		{"only redriven messages are judged by their rows", func(r *modelRules) { r.rowsForRedriven = true }, lateRefusals, 8},
		{"messages of a key with rows are applied at once", func(r *modelRules) { r.notJoined = true }, lateRefusals, 2},
		{"rows are committed apart from applied", func(r *modelRules) { r.rowsApart = true }, refusedWorld, 20},
		{"cleaning does not wait for what is set aside", func(r *modelRules) { r.asideCleaned = true }, refusedWorld, 20},
		// What is set aside is committed with the cursor, so that no message before it is published again. And an inbox puts what
		// follows a row behind it by itself: plain subscribers cannot.
		{"a sequence is known by its key only", func(r *modelRules) { r.asideByKey = true }, refusedWorld, 0},
		{"messages behind a refused one are not set aside", func(r *modelRules) { r.nothingQueues = true }, refusedWorld, 0},

		{"rows go once they are sent", func(r *modelRules) { r.droppedOnceSent = true }, usualWorld, 50},
		{"rows go before the watermark says so", func(r *modelRules) { r.droppedBeforeRaised = true }, cleanedWorld, 3},
		{"the watermark is not looked at", func(r *modelRules) { r.cleanedUnread = true }, cleanedWorld, 50},
		{"the watermark is read before the rows", func(r *modelRules) { r.cleanedReadFirst = true }, cleanedWorld, 4},

		{"a head becomes the previous of a message", func(r *modelRules) { r.headIsPrevious = true }, usualWorld, 0},
		{"previous is the cursor when that is further", func(r *modelRules) { r.previousFromCursor = true }, usualWorld, 0},
		{"no heads", func(r *modelRules) { r.noHeads = true }, usualWorld, 0},
		{"the cursor moves before the messages are sent", func(r *modelRules) { r.cursorFirst = true }, usualWorld, 0},
		{"what lies beyond a hole is dropped, until a silence", func(r *modelRules) { r.holesDropped = true }, usualWorld, 0},
		{"only the exact successor is applied, and not what follows a head", func(r *modelRules) { r.onlyExact = true }, usualWorld, 0},
		{"the broker's key is the stream", func(r *modelRules) { r.keyIsStream = true }, usualWorld, 0},
	}
}
