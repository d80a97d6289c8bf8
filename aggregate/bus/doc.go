// Package bus carries commands to their handlers.
package bus
