package pgserver_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/internal/pgserver"
)

func taken(name string, closed *int) pgserver.Source {
	return pgserver.Source{Name: name, Open: func(context.Context) (pgserver.Handle, error) {
		return pgserver.Handle{
			URL: "postgres://u:secret@h/" + name, Detail: "detail of " + name,
			Close: func() error { *closed++; return nil },
		}, nil
	}}
}

func refusing(name string, err error) pgserver.Source {
	return pgserver.Source{Name: name, Open: func(context.Context) (pgserver.Handle, error) {
		return pgserver.Handle{}, err
	}}
}

func mustNotOpen(t *testing.T, name string) pgserver.Source {
	return pgserver.Source{Name: name, Open: func(context.Context) (pgserver.Handle, error) {
		t.Errorf("%s was opened after an earlier source had decided", name)
		return pgserver.Handle{}, errors.New("opened")
	}}
}

func TestFindTakesTheFirstAndSaysWhyNotTheEarlierOnes(t *testing.T) {
	t.Parallel()
	closed := 0
	found, err := pgserver.Find(t.Context(),
		refusing("A", &pgserver.NotHereError{Reason: "not set"}),
		refusing("B", &pgserver.NotHereError{Reason: "no binaries"}),
		taken("C", &closed), mustNotOpen(t, "D"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := found.String(), "PostgreSQL: C, detail of C; not A: not set; not B: no binaries"; got != want {
		t.Errorf("line\n got %q\nwant %q", got, want)
	}
	if found.URL() != "postgres://u:secret@h/C" {
		t.Errorf("URL is %q", found.URL())
	}
	for range 2 {
		if err := found.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if closed != 1 {
		t.Errorf("closed %d times, want once", closed)
	}
}

func TestFindStopsAtAnError(t *testing.T) {
	t.Parallel()
	cause := errors.New("does not answer")
	_, err := pgserver.Find(t.Context(), refusing("A", cause), mustNotOpen(t, "B"))
	if !errors.Is(err, cause) || err.Error() != "pgserver: A: does not answer" {
		t.Fatalf("got %v", err)
	}
}

func TestFindWithNothingNamesReasonsAndRemedies(t *testing.T) {
	t.Parallel()
	_, err := pgserver.Find(t.Context(),
		refusing("DAYBOOK_TEST_DATABASE_URL", &pgserver.NotHereError{Reason: "not set"}),
		refusing("own server", &pgserver.NotHereError{Reason: "none"}))
	var none *pgserver.NoServerError
	if !errors.As(err, &none) || len(none.Refused) != 2 {
		t.Fatalf("got %#v", err)
	}
	for _, want := range []string{
		"DAYBOOK_TEST_DATABASE_URL: not set", "own server: none",
		"apt-get install postgresql", "container engine", "DAYBOOK_TEST_DATABASE_URL=postgres://",
		"a role that may create databases", "/postgres",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the text lacks %q:\n%v", want, err)
		}
	}
	_, err = pgserver.Find(t.Context(), refusing("DAYBOOK_DATABASE_URL", &pgserver.NotHereError{Reason: "not set"}))
	for _, want := range []string{"a role that may create schemas", "DAYBOOK_DATABASE_URL=postgres://user:password@127.0.0.1:5432/daybook"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the text for programs lacks %q:\n%v", want, err)
		}
	}
}

func TestFindHeedsTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pgserver.Find(ctx, mustNotOpen(t, "A")); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestFromEnv(t *testing.T) {
	const name = "DAYBOOK_TEST_ONLY_URL"
	open := pgserver.FromEnv(name).Open

	t.Setenv(name, "")
	var no *pgserver.NotHereError
	if _, err := open(t.Context()); !errors.As(err, &no) || no.Reason != "not set" {
		t.Errorf("unset: got %v", err)
	}

	for _, url := range []string{
		"postgres://u:topsecret@127.0.0.1:1/db",       // nobody listens
		"postgres://u:topsecret@127.0.0.1:notaport/x", // no URL
	} {
		t.Setenv(name, url)
		_, err := open(t.Context())
		if err == nil || errors.As(err, &no) {
			t.Errorf("%s: a set but unusable URL must end the search, got %v", url, err)
			continue
		}
		if strings.Contains(err.Error(), "topsecret") {
			t.Errorf("the password is printed: %v", err)
		}
	}
}
