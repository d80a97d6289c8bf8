package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/internal/testscale"
)

func (d *dev) integrationCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "integration [-- ARGS]",
		Short: "Run the tests with real message brokers; ARGS go to go test",
		Long: `Run the tests with real message brokers, which are a module of their own. ARGS go to
go test, packages included, named from the folder integration:

  go run ./cmd/dev integration -- -v ./jetstream

RabbitMQ and Redis must be installed (on Debian and Ubuntu, apt-get install
rabbitmq-server redis-server); the tests start their own, on 127.0.0.1, and need no
running service. The database is found as for dev test. The race detector is off,
-race among ARGS turns it on. The size is a tenth; FULL=1 runs all of it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.integration(cmd.Context(), args)
		},
	}
}

func (d *dev) integration(ctx context.Context, args []string) error {
	return d.withTestServer(ctx, func(env []string) error {
		return d.command(ctx, "integration", env, integrationArgs(args)...)
	})
}

// integrationArgs is the whole command. Two packages at once: their processes are many, and they measure lag.
func integrationArgs(args []string) []string {
	limit := "10m"
	if testscale.Factor() >= 1 {
		limit = "60m"
	}
	argv := append([]string{"go", "test", "-p=2", "-count=1", "-timeout=" + limit}, args...)
	for _, a := range args {
		if strings.HasPrefix(a, "./") || a == "." {
			return argv
		}
	}
	return append(argv, "./...")
}
