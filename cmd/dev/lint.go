package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
)

// staticcheck is run at this version by the go command, which fetches it.
const staticcheck = "honnef.co/go/tools/cmd/staticcheck@v0.8.2"

func (d *dev) lintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint",
		Short: "Check gofmt, vet, staticcheck and go.mod of all modules",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return d.lint(cmd.Context()) },
	}
}

// lint runs every check, so that one run shows all faults.
func (d *dev) lint(ctx context.Context) error {
	dirs, err := modules(d.root)
	if err != nil {
		return fmt.Errorf("dev: lint: %w", err)
	}
	failed := 0
	check := func(name string, err error) {
		if err != nil {
			failed++
			fmt.Fprintf(d.out, "lint: %s: %v\n", name, err)
		}
	}
	check("gofmt", d.gofmt(ctx))
	for _, dir := range dirs {
		for _, argv := range [][]string{
			{"go", "vet", "./..."},
			{"go", "run", staticcheck, "./..."},
			{"go", "mod", "tidy", "-diff"},
		} {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			check(fmt.Sprintf("%s in %s", strings.Join(argv, " "), dir), d.command(ctx, dir, nil, argv...))
		}
	}
	if failed > 0 {
		fmt.Fprintf(d.out, "lint: %d of %d checks failed\n", failed, 1+3*len(dirs))
		return &exitError{1}
	}
	fmt.Fprintf(d.out, "lint: ok, %d modules\n", len(dirs))
	return nil
}

// gofmt names the files of the repository that are not formatted.
func (d *dev) gofmt(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "gofmt", "-l", ".")
	cmd.Dir = d.root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, d.errOut
	if err := cmd.Run(); err != nil {
		return err
	}
	if files := strings.Fields(out.String()); len(files) > 0 {
		return fmt.Errorf("not formatted, run gofmt -w: %s", strings.Join(files, " "))
	}
	return nil
}
