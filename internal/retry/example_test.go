package retry_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/retry"
)

func ExamplePolicy() {
	policy := retry.Policy{}
	half := func() float64 { return 0.5 } // rand.Float64 in a program
	for failed := 1; !policy.Spent(failed); failed++ {
		fmt.Println(failed, "failed: again after", policy.Delay(failed, half))
	}
	fmt.Println("at most", policy.Worst(), "together")
	// Output:
	// 1 failed: again after 500ms
	// 2 failed: again after 1s
	// 3 failed: again after 2s
	// 4 failed: again after 4s
	// at most 15s together
}

func ExampleBudget() {
	budget, err := retry.NewBudget(retry.BudgetConfig{Share: 0.2, Floor: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	budget.First(now, 60)
	retries := 0
	for {
		ok, wait := budget.Retry(now)
		if !ok {
			fmt.Println(retries, "retries for 60 first attempts, the next asks again after", wait)
			return
		}
		retries++
	}
	// Output: 12 retries for 60 first attempts, the next asks again after 10s
}

func ExampleBreaker() {
	breaker := retry.Breaker{Random: func() float64 { return 0.5 }}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	back := now.Add(time.Second)
	for range 20 {
		if !breaker.Probe(now) {
			now = now.Add(breaker.Wait(now))
			continue
		}
		if now.Before(back) {
			fmt.Println("away, wait", breaker.Failed(now))
			continue
		}
		breaker.Succeeded()
		fmt.Println("back, seen after", now.Sub(back))
		break
	}
	// Output:
	// away, wait 37.5ms
	// away, wait 75ms
	// away, wait 150ms
	// away, wait 300ms
	// away, wait 600ms
	// back, seen after 162.5ms
}

func ExampleDrain() {
	for _, workers := range []int{15, 12, 10} {
		fmt.Println(workers, "workers:", retry.Drain(36_000, workers, 100, 1000))
	}
	// Output:
	// 15 workers: 72 s
	// 12 workers: 180 s
	// 10 workers: never, 1 worker short
}

func ExampleChain() {
	err := fmt.Errorf("book transfer 17: %w", fmt.Errorf("debit: %w", errors.New("account is closed")))
	for _, text := range retry.Chain(err) {
		fmt.Println(text)
	}
	// Output:
	// book transfer 17: debit: account is closed
	// debit: account is closed
	// account is closed
}

func ExampleFingerprint() {
	group := func(text string) string { return retry.Fingerprint("balances", eventstore.Permanent, errors.New(text)) }
	fmt.Println(group(`account 17 is closed`) == group(`account 4711 is closed`))
	fmt.Println(group(`account 17 is closed`) == group(`account 17 is unknown`))
	// Output:
	// true
	// false
}
