package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/eventstore/postgres"
)

func migrateCommand(s *settings) *cobra.Command {
	var print bool
	var cfg postgres.MigrateConfig
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the schema up to this release; safe from many processes, does nothing when nothing is to do",
		Long: "Brings the schema up to this release. Migrations go forward only: to go back, restore a backup.\n" +
			"It needs the right to create the schema, or to create tables in one that exists.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("migrate takes no %q: migrations go forward only; to go back, restore a backup", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Schema = s.schema
			if print {
				script, err := postgres.MigrationScript(cfg)
				if err == nil {
					_, err = fmt.Fprint(s.out, script)
				}
				return err
			}
			pool, release, err := s.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer release()
			before, err := postgres.SchemaVersion(cmd.Context(), pool, s.schema)
			if err != nil {
				return err
			}
			if err := postgres.Migrate(cmd.Context(), pool, cfg); err != nil {
				return err
			}
			after, err := postgres.SchemaVersion(cmd.Context(), pool, s.schema)
			if err != nil {
				return err
			}
			info, err := postgres.ReadEpoch(cmd.Context(), pool, s.schema)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.out, "epoch %s, %d partitions\nschema %q %s, in %s\n",
				info.Epoch, info.Partitions, s.schema, outcome(before, after), s.where(pool))
			return err
		},
	}
	cmd.Flags().BoolVar(&print, "print", false, "print the SQL instead of running it: of a new installation, or from a version on")
	cmd.Flags().IntVar(&cfg.From, "from", 0, "with --print: the version that the store has (see daybook status); 0 for none")
	cmd.Flags().IntVar(&cfg.Partitions, "partitions", 0, "partitions of a new store, fixed for ever (default 64)")
	cmd.Flags().Int64Var(&cfg.RangeSize, "range-size", 0, "positions in one range of the tables of a new store (default 10000000)")
	return cmd
}

// outcome says what a migration did.
func outcome(before, after int) string {
	switch {
	case before == 0:
		return fmt.Sprintf("installed, version %d", after)
	case before < after:
		return fmt.Sprintf("updated from version %d to %d", before, after)
	default:
		return fmt.Sprintf("is up to date, version %d", after)
	}
}

func grantsCommand(s *settings) *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use:   "grants --role ROLE",
		Short: "Print the SQL that gives a role what programs need, and no DDL rights",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if role == "" {
				return errors.New("grants: --role is missing: name the role that programs connect as")
			}
			script, err := postgres.GrantsScript(s.schema, role)
			if err == nil {
				_, err = fmt.Fprint(s.out, script)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "role that programs connect as")
	return cmd
}
