package main

import (
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
)

// progress shows how much of a file was read: it is written to as the file is read.
type progress interface {
	io.Writer
	done()
}

// newProgress draws a bar on a terminal and writes lines elsewhere.
func newProgress(notes io.Writer, file *os.File) progress {
	size := int64(-1)
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	if isTerminal(notes) {
		return bar{progressbar.NewOptions64(size,
			progressbar.OptionSetWriter(notes), progressbar.OptionSetDescription("importing "+file.Name()),
			progressbar.OptionShowBytes(true), progressbar.OptionUseANSICodes(true), progressbar.OptionClearOnFinish())}
	}
	fmt.Fprintf(notes, "importing %s\n", file.Name())
	return &lines{notes: notes, size: size}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

type bar struct{ *progressbar.ProgressBar }

// What cannot be drawn must not end an import.
func (b bar) Write(p []byte) (int, error) {
	_, _ = b.ProgressBar.Write(p)
	return len(p), nil
}

func (b bar) done() { _ = b.Finish() }

// lines writes a line for each quarter of the file, or, where the size is not known, for each megabyte.
type lines struct {
	notes      io.Writer
	size, read int64
	shown      int64
}

func (l *lines) Write(p []byte) (int, error) {
	l.read += int64(len(p))
	switch {
	case l.size > 0:
		if quarter := 4 * l.read / l.size; quarter > l.shown {
			l.shown = quarter
			fmt.Fprintf(l.notes, "read %d%%\n", 25*quarter)
		}
	default:
		if megabyte := l.read >> 20; megabyte > l.shown {
			l.shown = megabyte
			fmt.Fprintf(l.notes, "read %d MB\n", megabyte)
		}
	}
	return len(p), nil
}

func (l *lines) done() {}
