package saga_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/saga"
)

type odd[T any] struct{ X T }

func TestDiagrams(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]saga.Definition{
		"checkout": checkoutDefinition,
		"group":    three(),
		"escaped": changed(func(p *saga.Process[shop]) {
			p.Steps[0] = saga.Step[shop]{
				Name: "ask", Send: saga.Send(func(shop) (string, odd[int]) { return "", odd[int]{} }),
				NothingToUndo: "\"reads\" only;\n[see] #5 <b>`bold`</b> | \\ (x) {y} & ü",
			}
			p.Steps[3].If = func(shop) bool { return true }
			p.Completed = saga.Command[shop]{}
		}),
		"invalid": changed(func(p *saga.Process[shop]) {
			p.Events, p.Start = nil, saga.Start[shop]{}
			p.Steps[0] = saga.Step[shop]{Name: "no-send", Together: steps{}}
		}),
		"flow":  parcelDefinition,
		"after": cancelUnpaid, "spread": spreadUnpaid,
		"reactor": saga.NewReactor("thanks", shopEvents,
			saga.When(func(e saga.Event[shipped]) (string, tell) { return "", tell{} }),
			saga.WhenEach(func(e saga.Event[shipped], send func(string, any)) {}),
			saga.When(func(e saga.Event[paymentTaken]) (string, invoice) { return "", invoice{} })),
	} {
		file := filepath.Join("testdata", "diagram_"+name+".mmd")
		got := d.Diagram()
		if os.Getenv("UPDATE_GOLDEN") == "1" {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: another diagram (-want +got); UPDATE_GOLDEN=1 writes it:\n%s", name, diff)
		}
		for _, line := range strings.Split(got, "\n") {
			if strings.Count(line, `"`)%2 != 0 {
				t.Errorf("%s: a label is not closed: %s", name, line)
			}
		}
		if got != d.Diagram() {
			t.Errorf("%s: the diagram differs the second time", name)
		}
	}
	if saga.Define(nil).Diagram() != "" {
		t.Error("nothing is drawn as something")
	}
}
