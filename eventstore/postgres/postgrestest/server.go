package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/testcontainers/testcontainers-go"
	container "github.com/testcontainers/testcontainers-go/modules/postgres"

	"github.com/daybook-go/daybook/internal/pgserver"
)

const (
	image = "postgres:17-alpine"
	// enginePatience is how long a container engine may take to answer at all.
	enginePatience = 3 * time.Second
)

// theServer is one per process. Nobody closes it: a test binary has no end that
// a library sees. Its watcher ends it with the process.
var theServer = server{sources: sources}

type server struct {
	sources func() []pgserver.Source

	once  sync.Once
	found *pgserver.Found
	err   error
}

// url returns the URL of the server. The line that says which was taken is given
// to the first caller only.
func (s *server) url(ctx context.Context) (url, line string, err error) {
	s.once.Do(func() {
		s.found, s.err = pgserver.Find(ctx, s.sources()...)
		if s.err == nil {
			line = s.found.String()
		}
	})
	if s.err != nil {
		return "", "", s.err
	}
	return s.found.URL(), line, nil
}

func sources() []pgserver.Source {
	return []pgserver.Source{
		pgserver.FromEnv(pgserver.TestVariable),
		pgserver.Own(pgserver.Options{}),
		{Name: "container engine", Open: runContainer},
	}
}

func runContainer(ctx context.Context) (pgserver.Handle, error) {
	if err := engineAnswers(ctx); err != nil {
		return pgserver.Handle{}, &pgserver.NotHereError{Reason: err.Error()}
	}
	c, err := container.Run(ctx, image,
		container.WithDatabase("postgres"), container.WithUsername("postgres"),
		container.BasicWaitStrategies(),
		testcontainers.WithCmdArgs("-c", "max_connections=300", "-c", "max_prepared_transactions=100"))
	if err != nil {
		return pgserver.Handle{}, fmt.Errorf("run %s: %w", image, err)
	}
	url, err := c.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return pgserver.Handle{}, fmt.Errorf("run %s: %w", image, err)
	}
	return pgserver.Handle{URL: url, Detail: "container of " + image}, nil
}

// engineAnswers asks the container engine for a sign of life.
func engineAnswers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		// The library panics where it finds no engine at all.
		defer func() {
			if r := recover(); r != nil {
				answer <- fmt.Errorf("none found (%v)", r)
			}
		}()
		p, err := testcontainers.NewDockerProvider()
		if err != nil {
			answer <- err
			return
		}
		answer <- errors.Join(p.Health(ctx), p.Close())
	}()
	select {
	case err := <-answer:
		if err != nil {
			return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("does not answer within %s", enginePatience)
	}
}
