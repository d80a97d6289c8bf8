# Every target calls `go run ./cmd/dev`, which works without make as well.

.DEFAULT_GOAL := help
.PHONY: run run-checkout test race integration lint fuzz figures stop help

run: ## import the example ledger and print its balances
	go run ./cmd/dev run

run-checkout: ## let sagas bring 2,000 orders to their ends; ARGS="-chaos -seed 7 -orders 500", or a file
	go run ./cmd/dev checkout $(ARGS)

test: ## all tests with the race detector, long ones at a tenth of their size; ARGS="-run X ./eventstore/..."
	go run ./cmd/dev test -- $(ARGS)

race: ## all tests with the race detector at full size (up to an hour)
	FULL=1 go run ./cmd/dev test -- $(ARGS)

integration: ## the tests with real brokers, a tenth of their size; ARGS="-v ./jetstream"; FULL=1 for all
	go run ./cmd/dev integration -- $(ARGS)

lint: ## gofmt, vet, staticcheck and go.mod of all modules
	go run ./cmd/dev lint

fuzz: ## every fuzz target for TIME (default 10s)
	go run ./cmd/dev fuzz --time $(or $(TIME),10s)

figures: ## measure and compare with the bounds; ONLY=group limits it
	go run ./cmd/dev figures $(ONLY)

stop: ## stop the server that run keeps; its data stays
	go run ./cmd/dev stop

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
