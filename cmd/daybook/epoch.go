package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/eventstore/postgres"
)

func epochCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "epoch",
		Short: "Show the epoch of the store, or settle it after a move or a restore",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return s.epoch(cmd.Context(), 0) },
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:   "keep",
			Short: "Everything came along and nothing was written meanwhile: tokens and checkpoints stay valid",
			Args:  cobra.NoArgs,
			RunE:  func(cmd *cobra.Command, _ []string) error { return s.epoch(cmd.Context(), postgres.EpochKeep) },
		},
		&cobra.Command{
			Use:   "new",
			Short: "Data may be missing: old tokens are refused, and what was ahead must be rebuilt",
			Args:  cobra.NoArgs,
			RunE:  func(cmd *cobra.Command, _ []string) error { return s.epoch(cmd.Context(), postgres.EpochNew) },
		},
	)
	return cmd
}

func (s *settings) epoch(ctx context.Context, action postgres.EpochAction) error {
	if action != 0 && !s.named() { // a wrong database would lose its tokens, and the right one would keep them
		return errors.New("no database: give --database URL or set DAYBOOK_DATABASE_URL")
	}
	pool, release, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	var info postgres.EpochInfo
	if action == 0 {
		info, err = postgres.ReadEpoch(ctx, pool, s.schema)
	} else {
		info, err = postgres.SetEpoch(ctx, pool, s.schema, action)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "epoch     %s\nmade for  %s\nfound     %s\n", info.Epoch, info.MadeFor, info.Found)
	if !info.Settled() {
		return fmt.Errorf("the store was restored or copied: run `daybook epoch keep` if everything came along and nothing was written meanwhile, else `daybook epoch new`")
	}
	return nil
}
