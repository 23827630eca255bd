// Command checkhistory checks the history of a test of a cluster, which that has written to a file.
//
//	checkhistory FILE
//
// It prints what is wrong to the standard error, and counts, in JSON, to the standard output. The exit
// status is 1 if something is wrong, and 2 for wrong usage.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/socknotify/socknotify/gateway/internal/history"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: checkhistory FILE")
		os.Exit(2)
	}
	f, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "checkhistory:", err)
		os.Exit(2)
	}
	report, err := history.Check(bufio.NewReader(f), func(fault string) { fmt.Fprintln(os.Stderr, fault) })
	json.NewEncoder(os.Stdout).Encode(report)
	if err != nil {
		fmt.Fprintln(os.Stderr, "checkhistory:", err)
	}
	if err != nil || report.Faults > 0 {
		os.Exit(1)
	}
}
