package admission_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
)

// One request at a time. While it runs, one that nobody waits for is sent away after a moment; it was not executed, and
// is told when to come back. An operator gets in all the same.
func ExampleGate_Admit() {
	gate, err := admission.New(admission.Config{
		MinConcurrency: 1, MaxConcurrency: 1, // usually not: the limit finds itself
		MaxWaitBulk: time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	execute := func(r admission.Request, work func() error) (err error) {
		pass, err := gate.Admit(ctx, r)
		if err != nil {
			return err
		}
		defer func() { pass.Done(err) }()
		return work()
	}

	err = execute(admission.Request{Class: admission.Critical, Tenant: "acme"}, func() error {
		fmt.Println("a payment runs")

		err := execute(admission.Request{Class: admission.Bulk, Tenant: "acme"}, func() error {
			fmt.Println("never printed")
			return nil
		})
		var over *admission.OverloadedError
		if errors.As(err, &over) {
			fmt.Printf("the %s import: %s; again in 100 ms to 30 s: %t\n", over.Class, over.Reason, over.RetryAfter >= 100*time.Millisecond)
		}
		return execute(admission.Request{Class: admission.Operator}, func() error {
			fmt.Println("healthy, running:", gate.Stats().Running)
			return nil
		})
	})
	fmt.Println(err, gate.Stats().Running, gate.Stats().Shed.Total())
	// Output:
	// a payment runs
	// the bulk import: waited too long; again in 100 ms to 30 s: true
	// healthy, running: 1
	// <nil> 0 1
}
