// Package schedule runs jobs at times of a calendar: by a cron expression and a time zone, once per slot over any number of
// processes.
//
//	var NightlyReport = schedule.Job{
//		Name: "nightly-report", Cron: "30 2 * * *", Zone: "Europe/Berlin", TooLate: 2 * time.Hour,
//		Run: func(ctx context.Context, f schedule.Firing) error {
//			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//				…                                  // the report, in tx
//				return f.Finish(ctx, tx)           // ends the firing with it: once
//			})
//		},
//	}
//
//	runner, err := schedule.NewRunner(pool, schedule.Config{}, NightlyReport)
//	err = runner.Run(ctx)                              // in every process
//	…
//	records, err := schedule.History(ctx, pool, "nightly-report")
//
// A time of the calendar is a slot; what is done for it is a firing. What becomes of slots that could not begin in time,
// [Missed] and Job.TooLate say; what a slot does while an earlier firing goes on, [Overlap] says.
//
// # Guarantees
//
//   - One firing per slot, job and tenant, whatever the number of processes, and whatever dies. The next slot follows from
//     the last one that was decided about, and what is due is asked of the database's clock: that of a process does not count.
//   - Every slot is decided about: it is done, failed for good, missed or replaced, and [History] says so. None is lost.
//   - Run is called at least once for a slot that is run. What it does in the transaction of [Firing.Finish] or
//     [Firing.SaveTx] has its effect once.
//   - A firing whose process dies or falls silent for Config.Lease is taken over, with the progress that was saved. Who had it
//     before can neither save nor finish any more.
//   - With [Forbid], no two firings of one job and tenant are at work at once, unless one is in a process that fell silent
//     for the lease.
//   - A job that fails, hangs or panics holds up no other job, and no other tenant before Job.Workers of them hang.
//   - A process decides about the slots of all jobs, and carries out those that it knows. While a new program is rolled out
//     beside an old one, its jobs run on time.
//   - Zones are known wherever the program runs: their data is part of it, by [time/tzdata], which the system's takes
//     precedence over.
//
// # When clocks change
//
// The rule is that of cron as most systems have it, so that a daily job runs once a day and an hourly one once an hour:
//
//   - A time that does not exist, such as 02:30 when 03:00 follows 01:59, fires at the first instant after the gap, 03:00
//     there. Several times within the gap, and that instant itself, are one firing.
//   - A time that comes twice fires at the first of both.
//   - An expression whose minute or hour begins with a star goes by absolute time instead: it fires at each instant at which
//     the wall clock fits, so that "*/15 * * * *" keeps its pace through both changes. It also means that "*/15 2 * * *" has
//     no firing on a day without that hour, and eight on a day that has it twice: write "0,15,30,45 2 * * *" where that is wrong.
//
// # Caveats
//
//   - The context of a job must be watched. A job that ignores its end keeps its firing, and is reported as stuck.
//   - Without Finish or SaveTx a firing whose process dies in the middle is repeated.
//   - Two processes must not give one name to different jobs. When they differ in Cron, Zone or a policy, as they do in a
//     rolling deploy, the one that began to run last counts; another Cron or Zone counts from then on.
//   - Slots are as precise as the timers, a few milliseconds when the database is well. A slot that waits for an earlier firing
//     begins within a second of its end.
//   - The minute of H is hash mod 60, of the 64-bit FNV-1a of job, a zero byte and tenant. It never changes.
//   - Firings that ended longer ago than Config.Keep are removed.
//
// # Errors
//
//	error                 meaning                                          the caller should
//	of NewRunner          all faults, each with job, field, value, remedy   fix the code
//	ErrLost               the firing is somebody else's, or has ended       roll back and return
//	of Run                the store is not there, or jobs have not returned migrate; let jobs watch ctx
//	all others            of the database                                   let the firing be tried again
package schedule
