// Package schedule runs jobs at times of a calendar.
package schedule
