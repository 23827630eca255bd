package record

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// Legend explains the plots.
const Legend = "Blue is socknotify, dark grey the reference, light grey all others; the dashed line is at 1, and ± is half the distance\n" +
	"between the quartiles. A bar that reaches the right edge is cut off."

// Save writes the records of a workload into a folder: as JSON, as a table and as a plot.
func Save(dir, workload, doc string, facts []string, records []Record) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var lines, page, picture bytes.Buffer
	if err := WriteJSON(&lines, records); err != nil {
		return err
	}
	fmt.Fprintf(&page, "# %s\n\n%s\n\n", workload, doc)
	for _, f := range facts {
		fmt.Fprintf(&page, "- %s\n", f)
	}
	plotted := Plot(&picture, records)
	if plotted == nil {
		fmt.Fprintf(&page, "\n![%s](%s.png)\n\n%s\n", workload, workload, Legend)
	}
	fmt.Fprintf(&page, "\n%s\n", Table(records).RenderMarkdown())
	if missing := Missing(records); len(missing) > 0 {
		fmt.Fprint(&page, "\nNot measured:\n\n")
		for _, m := range missing {
			fmt.Fprintf(&page, "- %s\n", m)
		}
	}
	for _, file := range []struct {
		ext     string
		content *bytes.Buffer
	}{{".json", &lines}, {".md", &page}, {".png", &picture}} {
		if file.content.Len() == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, workload+file.ext), file.content.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return plotted
}
