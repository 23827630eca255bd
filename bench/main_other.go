//go:build !linux

// Command bench measures socknotify beside other event loops. It reads what processes use from Linux'
// /proc.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: it runs on Linux only")
	os.Exit(1)
}
