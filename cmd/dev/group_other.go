//go:build !unix

package main

import "os/exec"

// Without process groups the go command is ended, and what it started ends with
// its console.
func group(*exec.Cmd)    {}
func endGroup(*exec.Cmd) {}
