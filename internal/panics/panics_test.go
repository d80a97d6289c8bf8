package panics_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/internal/panics"
)

//go:noinline
func fails(value any) { panic(value) }

func recovered(value any) (text, stack string) {
	defer func() {
		p := recover()
		text, stack = panics.Describe(p), panics.Stack()
	}()
	fails(value)
	return "", ""
}

func TestWhatMayBeLogged(t *testing.T) {
	t.Parallel()
	for _, value := range []any{"hunter2", errors.New("hunter2"), struct{ Secret string }{"hunter2"}} {
		text, stack := recovered(value)
		if strings.Contains(text+stack, "hunter2") || text == "" {
			t.Errorf("%T: %s\n%s", value, text, stack)
		}
		if !strings.Contains(stack, "panics_test.fails") || !strings.Contains(stack, "panics_test.go:") || strings.Contains(stack, "0x") {
			t.Errorf("stack:\n%s", stack)
		}
	}
}

func TestTheRuntimesOwnText(t *testing.T) {
	t.Parallel()
	defer func() {
		if text := panics.Describe(recover()); !strings.Contains(text, "index out of range [3] with length 0") {
			t.Errorf("%q", text)
		}
	}()
	var none []int
	i := 3
	_ = none[i]
}
