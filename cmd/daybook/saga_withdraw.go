package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/saga"
)

func withdrawCommand(s *settings) *cobra.Command {
	var act action
	var newest int
	cmd := &cobra.Command{
		Use:   "withdraw SAGA --newest VERSION --reason WHY",
		Short: "After a rollback: let an older version of a saga be the newest again, so that programs that have it take its events",
		Args:  sagaArgs("SAGA"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case act.reason == "":
				return errors.New("--reason is missing: say why, it is kept with the saga")
			case newest < 1:
				return errors.New("--newest is missing: name the version that programs have, from 1")
			}
			return s.withSagas(cmd.Context(), true, func(db saga.DB) error {
				o := saga.Operator{DB: db, Actor: act.options().Actor, Reason: act.reason, Schema: s.schema}
				if err := o.Withdraw(cmd.Context(), args[0], newest); err != nil {
					return err
				}
				fmt.Fprintf(s.out, "version %d is the newest of %s: programs that have it take its events soon, unless one with a newer version still runs\n", newest, clean(args[0], 100))
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&newest, "newest", 0, "the version that is the newest from now on (required)")
	cmd.Flags().StringVar(&act.reason, "reason", "", "why; it is kept with the saga (required)")
	cmd.Flags().StringVar(&act.actor, "actor", "", "who decides (default user@host)")
	return sagaHelp(cmd, "Lets an older version of a saga be the newest again, when the newer one was rolled back and does not come back. Until then\n"+
		"programs without the newer one leave the saga's events alone, as they do not know all that it reads, and nothing is lost.\n"+
		"From then on what only the newer version reads is passed by, for good, and instances that began with it wait for a program\n"+
		"that has it.\n\n"+
		"Stop the programs with the newer version first. While one runs, or when one runs again, its version is the newest again, and\n"+
		"its log says so. Others wait for that for as long as a lease (Config.Lease, 10 s), so that nothing is lost meanwhile.\n\n"+
		"Exit codes: 0 done, 1 failed, 2 refused, nothing was changed.",
		"daybook saga withdraw checkout --newest 1 --reason \"2 was rolled back\"")
}
