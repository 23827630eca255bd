package conformance

import (
	"flag"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend/system"
	"github.com/socknotify/socknotify/internal/test/long"
)

var factsFile = flag.String("facts", "", "TestFacts writes its columns to the table in this `file`")

// TestFacts prints what this system reports of sockets: go test ./internal/test/conformance -run Facts
// -v. With -facts it rewrites the columns of docs/platforms.md that have the names of this
// system's.
func TestFacts(t *testing.T) {
	long.Only(t, "it waits for what does not come")
	type column struct {
		name    string
		backend string
		open    func(*env, uintptr) (*watcher, error)
	}
	columns := []column{}
	for _, b := range system.List() {
		columns = append(columns, column{b.Name + ", kernel", b.Name, watchSeam(b)},
			column{b.Name + ", port", b.Name, watchPort})
	}
	if len(columns) == 0 {
		t.Skip("no backend for this system")
	}
	if runtime.GOOS == "windows" {
		columns = append(columns, column{"ProcessSocketNotifications", columns[0].backend, watchNative})
	}
	head := []string{""}
	for _, c := range columns {
		head = append(head, c.name)
	}
	table := [][]string{head}
	t.Run("rows", func(t *testing.T) {
		for _, f := range factChecks() {
			row := append([]string{f.fact}, slices.Repeat([]string{notHere}, len(columns))...)
			table = append(table, row)
			for i, c := range columns {
				t.Run(f.name+"/"+c.name, func(t *testing.T) {
					if !f.alone {
						t.Parallel()
					}
					e := &env{T: t, sentence: f.sentence, cell: &factCell{open: c.open}}
					e.factory = func(tb testing.TB) *socknotify.Port[any] {
						p, err := socknotify.New[any](socknotify.WithBackend(c.backend))
						if err != nil {
							tb.Fatal(err)
						}
						return p
					}
					f.run(e)
					if e.cell.text != "" {
						row[i+1] = e.cell.text
					}
				})
			}
		}
	})
	var text strings.Builder
	for i, row := range table {
		text.WriteString("\n" + tableLine(row))
		if i == 0 {
			text.WriteString("\n|" + strings.Repeat(" --- |", len(row)))
		}
	}
	t.Log(text.String())
	if *factsFile == "" || t.Failed() {
		return
	}
	old, err := os.ReadFile(*factsFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*factsFile, []byte(withColumns(string(old), table)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func tableLine(cells []string) string {
	line := "|"
	for _, c := range cells {
		line += strings.TrimRight(" "+c, " ") + " |"
	}
	return line
}

func tableCells(line string) (cells []string) {
	for _, c := range strings.Split(strings.Trim(line, "|"), "|") {
		cells = append(cells, strings.TrimSpace(c))
	}
	return cells
}

// withColumns replaces, in the table of a document whose columns have the names of the new table's,
// those columns. A row that the document has not is put behind the one before it.
func withColumns(document string, table [][]string) string {
	lines := strings.Split(document, "\n")
	begin := slices.IndexFunc(lines, func(s string) bool {
		cells := tableCells(s)
		return strings.HasPrefix(s, "| | ") &&
			slices.ContainsFunc(table[0][1:], func(name string) bool { return slices.Contains(cells, name) })
	})
	if begin < 0 {
		return document
	}
	head := tableCells(lines[begin])
	at := begin + 2 // behind the rule, and the state of the columns
	for _, row := range table[1:] {
		i := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "| "+row[0]+" | ") })
		if i < 0 {
			i = at + 1
			lines = slices.Insert(lines, i, tableLine(append([]string{row[0]}, make([]string, len(head)-1)...)))
		}
		at = i
		cells := tableCells(lines[i])
		for j, name := range table[0] {
			if k := slices.Index(head, name); j > 0 && k > 0 {
				cells[k] = row[j]
			}
		}
		lines[i] = tableLine(cells)
	}
	return strings.Join(lines, "\n")
}

// The columns of this system are replaced, those of others stay, and what is no row stays.
func TestWithColumns(t *testing.T) {
	const head = "# Table\n\n| | epoll, port | kqueue |\n| --- | --- | --- |\n| *state* | run | |\n"
	const before = head + "| idle | – | OUT |\n\nText.\n"
	const want = head + "| idle | out | OUT |\n| data | in | |\n\nText.\n"
	table := [][]string{{"", "other", "epoll, port"}, {"idle", "x", "out"}, {"data", "y", "in"}}
	if got := withColumns(before, table); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
