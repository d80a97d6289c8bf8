// Package archtest holds the shape of the module: a test that fails when a
// package imports what it must not, when a file grows too long or when something
// is left in the text that does not belong there.
//
// The rules are in rules.go. A package without a rule is an error: whoever adds
// one says with it what it may import.
package archtest
