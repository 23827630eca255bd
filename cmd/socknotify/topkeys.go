package main

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// topHelp lists the keys.
const topHelp = "Keys: q quits; / searches, Enter keeps and Esc drops the search; s sorts by the next column, r reverses\n" +
	"the order; n, p, PgDn, PgUp and the arrows turn pages; Tab goes to the next port; space pauses."

// topSorts are the columns that s goes through.
var topSorts = [...]string{"notifications", "last", "socket", "key", "local", "remote", "state", "since"}

// decodeKeys returns the names of the keys that a terminal sent. Terminals send the bytes of a key together.
func decodeKeys(b []byte) (keys []string) {
	named := []struct{ sequence, name string }{
		{"\x1b[A", "up"}, {"\x1b[B", "down"}, {"\x1b[C", "right"}, {"\x1b[D", "left"},
		{"\x1bOA", "up"}, {"\x1bOB", "down"}, {"\x1bOC", "right"}, {"\x1bOD", "left"},
		{"\x1b[5~", "pgup"}, {"\x1b[6~", "pgdn"},
		{"\r", "enter"}, {"\n", "enter"}, {"\t", "tab"}, {"\x7f", "back"}, {"\b", "back"}, {"\x03", "ctrl-c"},
	}
next:
	for s := string(b); s != ""; {
		for _, k := range named {
			if rest, ok := strings.CutPrefix(s, k.sequence); ok {
				keys, s = append(keys, k.name), rest
				continue next
			}
		}
		if s[0] == '\x1b' {
			if len(s) == 1 {
				return append(keys, "esc")
			}
			return keys // an unknown sequence
		}
		r, n := utf8.DecodeRuneInString(s)
		if r >= ' ' && r != utf8.RuneError {
			keys = append(keys, string(r))
		}
		s = s[n:]
	}
	return keys
}

// key acts on one key. changed reports whether other data must be fetched.
func (m *topModel) key(k string) (quit, changed bool) {
	if k == "ctrl-c" {
		return true, false
	}
	if m.editing {
		return false, m.edit(k)
	}
	switch k {
	case "q":
		return true, false
	case "/":
		m.editing = true
	case "esc":
		changed = m.search != ""
		m.search, m.offset = "", 0
	case "s":
		m.sort = topSorts[(slices.Index(topSorts[:], m.sort)+1)%len(topSorts)]
		m.order = "asc"
		if m.sort == "notifications" || m.sort == "last" {
			m.order = "desc"
		}
		m.offset, changed = 0, true
	case "r":
		m.order = map[string]string{"asc": "desc", "desc": "asc"}[m.order]
		m.offset, changed = 0, true
	case "n", "pgdn", "right", "down":
		if m.offset+m.rows < m.now.list.Matched {
			m.offset, changed = m.offset+m.rows, true
		}
	case "p", "pgup", "left", "up":
		if m.offset > 0 {
			m.offset, changed = max(m.offset-m.rows, 0), true
		}
	case "tab":
		changed = m.nextPort()
	case " ":
		m.paused = !m.paused
		changed = !m.paused
	}
	return false, changed
}

// edit acts on a key while the search is typed. Each key updates the result.
func (m *topModel) edit(k string) (changed bool) {
	was := m.search
	switch k {
	case "enter":
		m.editing = false
	case "esc":
		m.editing, m.search = false, ""
	case "back":
		if _, n := utf8.DecodeLastRuneInString(m.search); n > 0 {
			m.search = m.search[:len(m.search)-n]
		}
	default:
		if utf8.RuneCountInString(k) == 1 {
			m.search += k
		}
	}
	if m.search != was {
		m.offset = 0
	}
	return m.search != was
}

func (m *topModel) nextPort() (changed bool) {
	ports := m.now.ports.Ports
	for i, p := range ports {
		if p.Name == m.port {
			next := ports[(i+1)%len(ports)].Name
			changed = next != m.port
			m.port, m.offset = next, 0
			return changed
		}
	}
	return false
}
