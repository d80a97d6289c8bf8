package aggregate

import (
	"math/big"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

type vaultPlain struct {
	ID    uuid.UUID
	Name  string
	At    time.Time
	Sums  [3]struct{ Cents int64 }
	notes string
}

type vaultDeep struct {
	Stock map[string][]int
	Total *big.Int // marshals itself
	Owner *struct{ Name string }
}

type vaultNode struct{ Next *vaultNode }

type (
	vaultLoop  struct{ Steps []vaultStep }
	vaultStep  struct{ Inner *vaultInner }
	vaultInner struct{ Steps []vaultStep }
	vaultTree  struct{ Children []vaultTree }
)

type vaultHidden struct {
	Stock map[string]int
	Index map[string]int `msgpack:"-"`
}

type vaultOmitted struct {
	Stock map[string]int `msgpack:",omitempty"`
}

type vaultTwice struct{ Items, Others []*struct{ N int } }

type vaultUnexported struct {
	Stock map[string]int
	index map[string]int
}

func (v vaultUnexported) Len() int { return len(v.index) }

type vaultAny struct{ Value any }

type vaultPanics struct{ Names []string }

func (vaultPanics) MarshalText() ([]byte, error) { panic("not today") }
func (*vaultPanics) UnmarshalText([]byte) error  { return nil }

func TestWhatIsKeptPlain(t *testing.T) {
	t.Parallel()
	for value, want := range map[any][2]bool{ // strings in it, plain
		new(int): {false, true}, new(string): {true, true}, new(time.Time): {false, true}, new(vaultPlain): {true, true},
		new(struct{}): {false, true}, new([4]bool): {false, true}, new([2][2]string): {true, true},
		new([]int): {false, false}, new(map[int]int): {false, false}, new(*int): {false, false}, new(any): {false, false},
		new(func()): {false, false}, new(chan int): {false, false}, new(vaultDeep): {false, false},
		new([2]struct{ F *int }): {false, false}, new(struct {
			A string
			B []int
		}): {false, false},
	} {
		of := reflect.TypeOf(value).Elem()
		if texts, plain := plainType(of); texts != want[0] || plain != want[1] {
			t.Errorf("%s: strings %v, plain %v, want %v", of, texts, plain, want)
		}
	}
}

func refusal[S any]() string {
	if _, err := newVault[S](); err != nil {
		return err.Error()
	}
	return ""
}

func TestWhatCannotBeKept(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		got   string
		parts []string
	}{
		"tag":        {refusal[vaultHidden](), []string{"vaultHidden.Index", "tag", "leave it out"}},
		"omitempty":  {refusal[[]vaultOmitted](), []string{"[].Stock", "omitempty"}},
		"two places": {refusal[vaultTwice](), []string{"vaultTwice.Others[]", "second place", "hold values"}},
		"recursive":  {refusal[vaultNode](), []string{"vaultNode.Next", "second place"}},
		"loop":       {refusal[vaultLoop](), []string{"Steps", "second place"}},
		"unexported": {refusal[vaultUnexported](), []string{"index"}},
		"interface":  {refusal[vaultAny](), []string{"Value"}},
	} {
		for _, part := range test.parts {
			if !strings.Contains(test.got, part) {
				t.Errorf("%s: %q does not say %q", name, test.got, part)
			}
		}
	}
	for name, got := range map[string]string{
		"plain": refusal[vaultPlain](), "deep": refusal[vaultDeep](), "pointer": refusal[*vaultDeep](), "map": refusal[map[string]int](),
		"itself": refusal[vaultPanics](), "tree": refusal[vaultTree](),
	} {
		if got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestKeptStatesDoNotChange(t *testing.T) {
	t.Parallel()
	v, err := newVault[vaultDeep]()
	if err != nil {
		t.Fatal(err)
	}
	make := func() vaultDeep {
		return vaultDeep{Stock: map[string][]int{"pen": {1, 2}, "none": {}, "nil": nil}, Total: big.NewInt(5), Owner: &struct{ Name string }{"ada"}}
	}
	spoil := func(d vaultDeep) {
		d.Stock["pen"][0] = 99
		d.Stock["ink"] = []int{1}
		delete(d.Stock, "none")
		d.Total.SetInt64(7)
		d.Owner.Name = "eve"
	}
	given := make()
	k, err := v.keep(given)
	if err != nil {
		t.Fatal(err)
	}
	spoil(given)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			got, err := k.open()
			if err != nil || !reflect.DeepEqual(got, make()) {
				t.Errorf("opened %+v, %v", got, err)
			}
			spoil(got)
		})
	}
	all.Wait()
}

func TestPlainStatesAreKept(t *testing.T) {
	t.Parallel()
	v, err := newVault[vaultPlain]()
	if err != nil {
		t.Fatal(err)
	}
	given := vaultPlain{ID: uuid.New(), Name: "ada", At: time.Now(), notes: "unexported fields too"}
	given.Sums[1].Cents = 5
	k, err := v.keep(given)
	if err != nil {
		t.Fatal(err)
	}
	before := given
	given.Sums[1].Cents, given.Name = 9, "eve"
	if got, err := k.open(); err != nil || got != before {
		t.Errorf("opened %+v, %v", got, err)
	}
}

func TestSizesCountWhatIsBehindAState(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	size := func(state vaultPlain) int {
		v := &vault[vaultPlain]{plain: true, texts: true}
		k, err := v.keep(state)
		if err != nil {
			t.Fatal(err)
		}
		return k.size()
	}
	if empty, full := size(vaultPlain{}), size(vaultPlain{Name: long, notes: long}); full-empty != 20_000 || empty < int(reflect.TypeFor[vaultPlain]().Size()) {
		t.Errorf("sizes %d and %d", empty, full)
	}
	v, err := newVault[map[string]string]()
	if err != nil {
		t.Fatal(err)
	}
	k, err := v.keep(map[string]string{"a": long})
	if err != nil || k.size() < 10_000 || k.size() > 25_000 {
		t.Errorf("size %d, %v", k.size(), err)
	}
}

func TestPanicsOfMarshallersAreErrors(t *testing.T) {
	t.Parallel()
	v, err := newVault[vaultPanics]()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.keep(vaultPanics{}); err == nil || !strings.Contains(err.Error(), "not today") {
		t.Errorf("keep: %v", err)
	}
	if _, err := (kept[vaultPanics]{vault: v, data: []byte{0xc1}}).open(); err == nil {
		t.Error("bytes that are no state were opened")
	}
}
