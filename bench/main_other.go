//go:build !linux

// Command bench measures socknotify beside other event loops. It needs /proc of Linux, from which it
// reads what processes use.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: it runs on Linux only")
	os.Exit(1)
}
