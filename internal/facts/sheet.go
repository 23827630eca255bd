package facts

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/backend/system"
)

// A column is one way to observe the system: a backend through the seam, a port, or the system's own call.
type column struct {
	name string
	seam func() (*seam, error)
	open func() (api, error)
}

// A row is a situation or a question. It has a function for the seam, for an api, or for both.
type row struct {
	name  string
	alone bool // it is observed while no other is
	seam  func(*seam) (string, error)
	api   func(open func() (api, error)) (string, error)
}

// A fact is a row of a second table, about calls that one system alone has.
type fact struct {
	name string
	find func(c *scope) string
}

// notHere is the text of a cell that cannot be observed on this system.
const notHere = "not on this system"

// Sheet observes all rows in all columns and returns a table in Markdown, and on Windows a second one, about overlapped
// calls. It returns an error for each situation that could not be set up, or that made no report although it must.
func Sheet() (table string, errs []error) {
	columns, rows := columns(), append(situations(), questions...)
	cells, answers := make([][]string, len(rows)), make([]string, len(overlapped))
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, 8)
	fill := func(cell *string, name string, alone bool, find func() (string, error)) {
		if alone {
			wg.Wait()
			defer wg.Wait()
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			text, err := find()
			if errors.Is(err, errors.ErrUnsupported) {
				text, err = notHere, nil
			}
			*cell = text
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	for i, r := range rows {
		cells[i] = make([]string, len(columns))
		for j, c := range columns {
			fill(&cells[i][j], r.name+", "+c.name, r.alone, func() (string, error) { return observe(r, c) })
		}
	}
	for i, f := range overlapped {
		fill(&answers[i], f.name, false, func() (string, error) { return run(f.find) })
	}
	wg.Wait()
	var b strings.Builder
	head := []string{fmt.Sprintf("%s, %s/%s", version(), runtime.GOOS, runtime.GOARCH)}
	rule := []string{"---"}
	for _, c := range columns {
		head, rule = append(head, c.name), append(rule, "---")
	}
	line(&b, head)
	line(&b, rule)
	for i, r := range rows {
		line(&b, append([]string{r.name}, cells[i]...))
	}
	if len(overlapped) > 0 {
		b.WriteString("\n")
		line(&b, []string{"overlapped calls", version()})
		line(&b, []string{"---", "---"})
	}
	for i, f := range overlapped {
		line(&b, []string{f.name, answers[i]})
	}
	return b.String(), errs
}

// Names returns the names of the rows.
func Names() []string {
	var list []string
	for _, r := range append(situations(), questions...) {
		list = append(list, r.name)
	}
	return list
}

func line(b *strings.Builder, cells []string) {
	for _, c := range cells {
		b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
	}
	b.WriteString("|\n")
}

func columns() []column {
	var list []column
	for _, r := range system.List() {
		list = append(list,
			column{name: r.Name + ", kernel", seam: func() (*seam, error) { return openSeam(r) }},
			column{name: r.Name + ", port", open: func() (api, error) { return openPort(r.Name) }})
	}
	return append(list, column{name: "ProcessSocketNotifications", open: openNative})
}

func observe(r row, c column) (string, error) {
	if c.seam == nil {
		return r.api(c.open)
	}
	if r.seam == nil {
		return "", nil
	}
	s, err := c.seam()
	if err != nil {
		return "", err
	}
	defer s.close()
	return r.seam(s)
}

// names returns the names of events without bars, because a bar ends a cell of the table.
func names(e socknotify.Events) string {
	if e == 0 {
		return nothing
	}
	return strings.ReplaceAll(e.String(), "|", " ")
}

const nothing = "–"
