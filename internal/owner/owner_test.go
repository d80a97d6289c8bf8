package owner_test

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/daybook-go/daybook/internal/owner"
)

func TestNamesAreTheirOwn(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[^/]+/` + strconv.Itoa(os.Getpid()) + `/[0-9a-f]{12}$`)
	one, other := owner.Name(), owner.Name()
	if !form.MatchString(one) || one == other {
		t.Errorf("names are %q and %q", one, other)
	}
}
