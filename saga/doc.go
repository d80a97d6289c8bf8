// Package saga lets what several aggregates do together always come to an end: completed, compensated, or stuck with a
// sentence that says where and why.
package saga
