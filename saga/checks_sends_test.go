package saga

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// picky is a sender that knows some types of commands.
type picky struct {
	*post
	known []reflect.Type
}

func (p picky) Knows(payload reflect.Type) error {
	if slices.Contains(p.known, payload) {
		return nil
	}
	return fmt.Errorf("no handler for %s", payload)
}

type (
	goes      struct{}
	comesBack struct{}
	says      struct{}
	reminds   struct{}
	walker    struct{ To string }
)

// Commands that nobody has registered are found when the manager is made, all of them, each with its step.
func TestManagersAskForWhatIsSent(t *testing.T) {
	t.Parallel()
	walk := Define(Process[walker]{
		Name: "walk", Version: 3, Events: scriptEvents, Start: StartOn(func(Event[opened]) walker { return walker{} }),
		Steps: []Step[walker]{
			{Name: "go", Send: Send(func(walker) (string, goes) { return "", goes{} }), Undo: Send(func(walker) (string, comesBack) { return "", comesBack{} })},
			{Name: "both", Together: []Step[walker]{{Name: "again", Send: Send(func(walker) (string, goes) { return "", goes{} }), NothingToUndo: "no"}}},
		},
		Completed: Send(func(walker) (string, says) { return "", says{} }),
	})
	remind := After("remind", time.Hour, scriptEvents, When(func(e Event[opened]) (string, reminds) { return e.Stream.ID, reminds{} }), Unless())
	react := NewReactor("react", scriptEvents, When(func(e Event[opened]) (string, reminds) { return "", reminds{} }))
	types := []reflect.Type{reflect.TypeFor[goes](), reflect.TypeFor[comesBack](), reflect.TypeFor[says](), reflect.TypeFor[reminds]()}
	all := []Definition{walk, remind, react}
	if _, err := NewManager(&pgxpool.Pool{}, newPost(), picky{newPost(), types}, Config{}, all...); err != nil {
		t.Errorf("all are known: %v", err)
	}
	if _, err := NewManager(&pgxpool.Pool{}, newPost(), newPost(), Config{}, all...); err != nil {
		t.Errorf("a sender that cannot be asked: %v", err)
	}
	_, err := NewManager(&pgxpool.Pool{}, newPost(), picky{newPost(), types[:1]}, Config{}, all...)
	for _, want := range []string{
		`define "walk" version 3: step "go": field Undo sends saga.comesBack, which the sender does not know (no handler for saga.comesBack): register its handler before the manager is made`,
		`define "walk" version 3: field Completed sends saga.says`, `define "remind" version 1: field when sends saga.reminds`, `define "react" version 1: field when sends`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the faults lack %q: %v", want, err)
		}
	}
	var fault *DefinitionError
	if !errors.As(err, &fault) || strings.Contains(fmt.Sprint(err), "saga.goes") {
		t.Errorf("the faults are %v", err)
	}
}
