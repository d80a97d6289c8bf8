package commandhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// The domain: what can happen to a seat, and the one rule.
type (
	SeatEvent interface{ isSeatEvent() }
	Taken     struct{ By string }
	Seat      struct{ By string }
	Take      struct {
		Seat string `json:"-"`
		By   string `json:"by"`
	}
)

func (Taken) isSeatEvent() {}

var ErrTaken = errors.New("seat: taken")

func (s Seat) Evolve(e SeatEvent) Seat { return Seat(e.(Taken)) }

func (c Take) Decide(s Seat) ([]SeatEvent, error) {
	if s.By != "" {
		return nil, ErrTaken
	}
	return []SeatEvent{Taken{c.By}}, nil
}

var (
	seatType = aggregate.Define("seat", Seat.Evolve, eventstore.NewCatalog(eventstore.TypeOf[Taken]("seat.taken")),
		aggregate.Refuses("taken", ErrTaken))
	takeType = bus.TypeOf[Take]("seat.take")
)

// A command and a read behind HTTP. The client sends its request twice, as it does when the first answer is lost.
func Example() {
	store := memory.New(memory.Config{})
	seats := aggregate.NewRepository(store, seatType)
	commands := bus.New(bus.Config{}, bus.Idempotent(store))
	bus.HandleAggregate(commands, takeType, seats, func(c Take) string { return c.Seat }, Take.Decide)

	api, err := commandhttp.New(commandhttp.Config{
		Bus: commands,
		Problems: commandhttp.NewProblems("https://api.example.com/problems/", commandhttp.ProblemType{
			Name: "taken", Status: http.StatusConflict, Title: "The seat is taken", Remedy: "choose another seat", For: ErrTaken, Code: "taken",
		}),
	})
	if err != nil {
		panic(err)
	}
	commandhttp.Command(api, "PUT /seats/{seat}", commandhttp.Endpoint[Take]{
		IfMatch: commandhttp.Optional, Status: http.StatusCreated,
		Fill:     func(r *http.Request, c *Take) error { c.Seat = r.PathValue("seat"); return nil },
		Location: func(_ *http.Request, c Take, _ bus.Reply) string { return "/seats/" + c.Seat },
	})
	commandhttp.Query(api, "GET /seats/{seat}", commandhttp.Read[aggregate.Loaded[Seat]]{
		Load: func(ctx context.Context, r *http.Request) (aggregate.Loaded[Seat], error) {
			return seats.Load(ctx, r.PathValue("seat"))
		},
		Version: func(s aggregate.Loaded[Seat]) eventstore.Version { return s.Version },
		Render:  func(s aggregate.Loaded[Seat]) any { return map[string]string{"by": s.State.By} },
	})

	server := httptest.NewServer(api)
	defer server.Close()
	ask := func(method, path, key, body string) {
		r, _ := http.NewRequest(method, server.URL+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("Idempotency-Key", `"`+key+`"`)
		}
		response, err := server.Client().Do(r)
		if err != nil {
			panic(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		fmt.Println(strings.Join(strings.Fields(fmt.Sprintln(
			response.StatusCode, response.Header.Get("Etag"), response.Header.Get("Idempotency-Replayed"), string(text))), " "))
	}
	ask("PUT", "/seats/12A", "k1", `{"by":"ada"}`)
	ask("PUT", "/seats/12A", "k1", `{"by":"ada"}`)
	ask("GET", "/seats/12A", "", "")
	ask("PUT", "/seats/12A", "k2", `{"by":"bob"}`)
	ask("PUT", "/seats/12B", "", `{"by":"bob"}`)
	// Output:
	// 201 "v1"
	// 201 "v1" true
	// 200 "v1" {"by":"ada"}
	// 409 {"type":"https://api.example.com/problems/taken","title":"The seat is taken","status":409,"detail":"seat: taken","rule":"taken","remedy":"choose another seat"}
	// 400 {"type":"https://api.example.com/problems/key-missing","title":"The request has no Idempotency-Key","status":400,"field":"Idempotency-Key","remedy":"add a key of its own, such as Idempotency-Key: \"8e03978e-40d5-43dd-bc93-6894a57f9324\", and keep it when you send the request again"}
}
