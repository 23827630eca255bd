//go:build linux

// Command bench measures socknotify beside the standard library, other event loops and C, one workload after the other,
// and writes the results.
//
//	go run .                     all workloads
//	go run . echo core           some
//	go run . -quick -json        under a minute, a line of JSON for each result
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := rootCommand()
	cmd.SetArgs(longFlags(os.Args[1:]))
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// longFlags allows flags with one dash, like those of the go command.
func longFlags(args []string) []string {
	long := make([]string, len(args))
	for i, a := range args {
		long[i] = a
		if a == "--" {
			copy(long[i:], args[i:])
			break
		}
		if len(a) > 2 && strings.HasPrefix(a, "-") && a[1] != '-' {
			long[i] = "-" + a
		}
	}
	return long
}
