package docs

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/projection"
)

// region account
var ErrFunds = errors.New("account: not enough money")

// Event is what can happen to an account.
type Event interface{ isAccountEvent() }

type (
	Deposited struct{ Cents int64 }
	Withdrawn struct{ Cents int64 }
)

func (Deposited) isAccountEvent() {}
func (Withdrawn) isAccountEvent() {}

// Account is what decisions need to know, and nothing more.
type Account struct{ Balance int64 }

// Evolve folds one event into the state. The event has happened: it cannot be refused.
func (a Account) Evolve(e Event) Account {
	switch e := e.(type) {
	case Deposited:
		a.Balance += e.Cents
	case Withdrawn:
		a.Balance -= e.Cents
	}
	return a
}

type (
	Deposit  struct{ Cents int64 }
	Withdraw struct{ Cents int64 }
)

// Decide turns a command into events, or refuses it.
func (c Deposit) Decide(Account) ([]Event, error) { return []Event{Deposited{c.Cents}}, nil }

func (c Withdraw) Decide(a Account) ([]Event, error) {
	if c.Cents > a.Balance {
		return nil, ErrFunds
	}
	return []Event{Withdrawn{c.Cents}}, nil
}

// The names are what is stored. They stay when the Go types are renamed.
var Events = eventstore.NewCatalog(
	eventstore.TypeOf[Deposited]("account.deposited"),
	eventstore.TypeOf[Withdrawn]("account.withdrawn"),
)

var Type = aggregate.Define("account", Account.Evolve, Events)

// endregion

// region view
// Balance is one row of the view.
type Balance struct{ Cents int64 }

func (b Balance) deposited(e projection.Event[Deposited]) Balance {
	b.Cents += e.Payload.Cents
	return b
}

func (b Balance) withdrawn(e projection.Event[Withdrawn]) Balance {
	b.Cents -= e.Payload.Cents
	return b
}

// Balances is the table readmodels.balances_v1, a row per account.
var Balances = projection.View[string, Balance]{
	Name: "balances", Version: 1, Events: Events,
	Folds: []projection.Fold[string, Balance]{
		projection.On(projection.ByStream, Balance.deposited),
		projection.On(projection.ByStream, Balance.withdrawn),
	},
}

// endregion

// region migrate
// Migrate runs where you deploy, as a role that may create tables.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := postgres.Migrate(ctx, pool, postgres.MigrateConfig{}); err != nil {
		return err
	}
	return projection.Install(ctx, pool, Balances)
}

// endregion

// serve is the quickstart's program with the URL as a parameter.
func serve(ctx context.Context, url string, then func(ctx context.Context, store *postgres.Store, pool *pgxpool.Pool) error) error {
	// region open
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	runner, err := projection.NewRunner(pool, store.Log(), projection.Config{}, Balances)
	if err != nil {
		return err
	}
	// endregion

	// region start
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- store.Run(ctx) }()
	go func() { ended <- runner.Run(ctx) }()
	// endregion
	err = then(ctx, store, pool)
	stop()
	return errors.Join(err, <-ended, <-ended)
}

// region handler
// withdraw answers with the token of what it wrote.
func withdraw(accounts *aggregate.Repository[Account, Event]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := accounts.Handle(r.Context(), r.PathValue("id"), Withdraw{Cents: 30}.Decide)
		switch {
		case errors.Is(err, ErrFunds):
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		case err != nil:
			http.Error(w, "try again", http.StatusServiceUnavailable)
		default:
			w.Header().Set("Daybook-Token", result.Token.String())
		}
	}
}

// endregion

func TestQuickstart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	admin := postgrestest.Empty(t)
	if err := Migrate(ctx, admin); err != nil {
		t.Fatal(err)
	}
	err := serve(ctx, postgrestest.URL(admin), func(ctx context.Context, store *postgres.Store, pool *pgxpool.Pool) error {
		// region command
		accounts := aggregate.NewRepository(store, Type)

		result, err := accounts.Handle(ctx, "ada", Deposit{Cents: 100}.Decide)
		if err != nil {
			return err
		}
		// result.State is {Balance: 100}, result.Version is 1

		_, err = accounts.Handle(ctx, "ada", Withdraw{Cents: 500}.Decide)
		// errors.Is(err, ErrFunds), and nothing was written
		// endregion
		if !errors.Is(err, ErrFunds) || result.State.Balance != 100 || result.Version != 1 {
			t.Errorf("%+v, %v", result, err)
		}

		// region read
		row, err := Balances.Get(ctx, pool, "ada", projection.AtLeast(result.Token), projection.Within(2*time.Second))
		if err != nil {
			return err
		}
		// row is {Cents: 100}
		// endregion
		if row.Cents != 100 {
			t.Errorf("row %+v, want 100", row)
		}

		recorder := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodPost, "/accounts/ada/withdrawals", nil)
		request.SetPathValue("id", "ada")
		withdraw(accounts)(recorder, request)
		// region token
		token, err := eventstore.ParseToken(recorder.Header().Get("Daybook-Token"))
		if err != nil {
			return err
		}
		row, err = Balances.Get(ctx, pool, "ada", projection.AtLeast(token))
		// endregion
		if err != nil || row.Cents != 70 {
			t.Errorf("row %+v, %v; want 70", row, err)
		}
		recorder = httptest.NewRecorder()
		request.SetPathValue("id", "nobody")
		withdraw(accounts)(recorder, request)
		if recorder.Code != http.StatusUnprocessableEntity {
			t.Errorf("status %d for an account without money", recorder.Code)
		}

		// region replay
		rows, err := Balances.Replay(store.ReadAll(ctx, eventstore.Position{}, eventstore.Filter{}))
		// rows is a map with the same rows as the table
		// endregion
		if err != nil || rows["ada"].Cents != 70 {
			t.Errorf("replay: %v, %v", rows, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
