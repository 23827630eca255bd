//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/socknotify/socknotify/bench/internal/claims"
	"github.com/socknotify/socknotify/bench/internal/suite"
)

// summarize prints which promises the results in a folder keep.
func summarize(w io.Writer, dir string) error { return claims.Write(w, dir) }

// writeIndex writes the first page of a folder of results, which may be of different runs.
func writeIndex(dir string) error {
	records, err := claims.Read(dir)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	page.WriteString("# Results\n\nHow they are measured, and how to read them: [performance](../performance.md). Each page names its machine\n" +
		"and its day; beside it are the raw records.\n\n")
	for _, w := range suite.Workloads() {
		if _, err := os.Stat(filepath.Join(dir, w.Name+".md")); err == nil {
			fmt.Fprintf(&page, "- [%s](%s.md): %s ([records](%s.json))\n", w.Name, w.Name, w.Doc, w.Name)
		}
	}
	page.WriteString("\n## What is promised\n\nA figure is the median of all rounds, of which a round has one; spread is the distance between their quartiles.\n\n" +
		claims.Table(claims.Judge(records)).RenderMarkdown() + "\n")
	return os.WriteFile(filepath.Join(dir, "README.md"), page.Bytes(), 0o644)
}
