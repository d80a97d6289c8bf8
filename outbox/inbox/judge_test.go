package inbox

import (
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	at := eventstore.PositionAt
	message := func(previous, position int64) Arrival { return Arrival{Previous: at(previous), Position: at(position)} }
	skip := func(a Arrival) Arrival { a.Skip = true; return a }
	head := func(a Arrival) Arrival { a.Head = true; return a }
	again := func(a Arrival) Arrival { a.Redriven = true; return a }
	nothing, row, lower := Known{Applied: at(20)}, Known{Applied: at(20), Own: true, Lowest: at(10)}, Known{Applied: at(20), Own: true, Lowest: at(5)}
	others := Known{Applied: at(20), Lowest: at(5)}
	for name, c := range map[string]struct {
		message Arrival
		known   Known
		want    Verdict
	}{
		"the next":                                {message(20, 30), nothing, Apply},
		"the next behind a hole in the log":       {message(8, 30), nothing, Apply},
		"a repeat":                                {message(8, 10), nothing, Drop},
		"the last one again":                      {message(8, 20), nothing, Drop},
		"early":                                   {message(25, 30), nothing, Early},
		"the next of a key that waits":            {message(20, 30), others, Join},
		"early, of a key that waits":              {message(25, 30), others, Early},
		"a repeat of a key that waits":            {message(8, 10), others, Drop},
		"a head":                                  {head(message(20, 30)), nothing, Apply},
		"a head, and something waits":             {head(message(20, 30)), others, Apply},
		"an early head":                           {head(message(25, 30)), nothing, Early},
		"an old head":                             {head(message(8, 20)), nothing, Drop},
		"a marker":                                {skip(message(20, 30)), nothing, Skip},
		"a marker of a key that waits":            {skip(message(20, 30)), others, Skip},
		"an early marker":                         {skip(message(25, 30)), nothing, Early},
		"a marker again":                          {skip(message(8, 10)), row, Drop},
		"a marker of what was applied":            {skip(message(8, 10)), nothing, Drop},
		"redriven, the lowest":                    {again(message(8, 10)), row, Settle},
		"redriven, not the lowest":                {again(message(8, 10)), lower, Await},
		"redriven again":                          {again(message(8, 10)), nothing, Drop},
		"redriven, and its marker has not come":   {again(message(20, 30)), nothing, Early},
		"redriven, and neither has what precedes": {again(message(25, 30)), nothing, Early},
		"the message after its marker":            {message(8, 10), row, Settle},
		"the message after its marker, too soon":  {message(8, 10), lower, Await},
		"discarded":                               {skip(again(message(8, 10))), row, Forget},
		"discarded, not the lowest":               {skip(again(message(8, 10))), lower, Forget},
		"discarded again":                         {skip(again(message(8, 10))), nothing, Drop},
		"discarded, and its marker has not come":  {skip(again(message(20, 30))), nothing, Early},
	} {
		if got := Judge(c.message, c.known); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
