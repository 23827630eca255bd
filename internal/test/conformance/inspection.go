package conformance

import (
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
)

// when runs the statement's block where a condition holds, or where it does not: the name of a
// system or of a backend, "windows" for its ports wherever they are faked, "kernel-edges", where a
// drained socket's enable costs no system call, "strict", "tied" and "one-shot" in the programs
// that use edges, or the name of a socket that is connected.
func (r *run) when(condition string, holds bool) {
	body, p := r.stmt.block, r.p()
	is := condition == runtime.GOOS || condition == p.Backend()
	switch s, _ := r.handles[condition].(*socket); {
	case condition == "windows":
		is = is || strings.HasPrefix(p.Backend(), "psn")
	case condition == "kernel-edges":
		is = kernelEdges(p)
	case condition == "strict":
		is = r.strict
	case condition == "tied":
		is = r.tied
	case condition == "one-shot":
		is = strings.Contains(r.trigger, condition)
	case s != nil:
		is = s.RemoteAddr().IsValid()
	}
	if is == holds {
		r.block(body)
	}
}

// snapshot checks what a snapshot says of the port's only registration.
func (r *run) snapshot(a []string) {
	all := debug.TakeSnapshot(r.p(), 0, 10).Registrations
	if len(all) != 1 {
		r.Fatalf("%d registrations in the snapshot; want 1", len(all))
	}
	got := all[0]
	if got.Socket != r.handle(a[0]).Handle() {
		r.Fatalf("want the socket %d, got %d", r.handle(a[0]).Handle(), got.Socket)
	}
	r.checkFields(reflect.ValueOf(got), reflect.ValueOf(r.seen), a[1:])
	r.seen = got
}

// page checks what a snapshot says of the port.
func (r *run) page(a []string) {
	p := r.p()
	got := debug.TakeSnapshot(p, 0, 10)
	r.checkFields(reflect.ValueOf(got), reflect.Value{}, a)
	if got.Backend != p.Backend() || got.Time.IsZero() || got.Stats != p.Stats() {
		r.Fatalf("%+v", got)
	}
	if !got.Closed && got.KernelEdges != kernelEdges(p) {
		r.Fatalf("%+v", got)
	}
	spread := uint64(0)
	for _, part := range got.Spread {
		spread += part.Notifications
	}
	if spread != got.Stats.Notifications {
		r.Fatalf("%d notifications over the places, %d in all", spread, got.Stats.Notifications)
	}
}

// pages checks that pages of so many registrations, from a socket's number on, have those of these
// sockets, each once, in the order of the numbers.
func (r *run) pages(a []string) {
	p, limit, from, sockets := r.p(), r.number(a[0]), uintptr(r.number(a[1])), a[2:]
	names := make(map[uintptr]any)
	for _, name := range sockets {
		names[r.handle(name).Handle()] = name
	}
	for more, last, pages := true, uintptr(0), 0; more; pages++ {
		got := debug.TakeSnapshot(p, from, limit)
		if len(got.Registrations) > max(limit, 0) || pages > len(sockets) {
			r.Fatalf("%d registrations in page %d", len(got.Registrations), pages)
		}
		for _, x := range got.Registrations {
			if x.Key == nil || names[x.Socket] != x.Key || x.Socket < last {
				r.Fatalf("socket %d, key %v after %d", x.Socket, x.Key, last)
			}
			delete(names, x.Socket)
			last = x.Socket
		}
		from, more = got.Next, got.More
	}
	if len(names) != 0 {
		r.Errorf("%d registrations in no page", len(names))
	}
}

// checkFields checks fields of a struct: Name=value, or Name=zero, set, same as in the one before,
// or new.
func (r *run) checkFields(got, before reflect.Value, words []string) {
	for _, word := range words {
		name, want, _ := strings.Cut(word, "=")
		f := got.FieldByName(name)
		if !f.IsValid() {
			r.Fatalf("there is no field %s", name)
		}
		ok := false
		switch v := f.Interface().(type) {
		case socknotify.Events:
			m, known := mask(want, eventNames)
			ok = known && v == m
		case socknotify.Trigger:
			m, known := mask(want, triggerNames)
			ok = known && v == m
		default:
			ok = fmt.Sprint(v) == want || f.Kind() == reflect.Slice && fmt.Sprint(f.Len()) == want
		}
		switch want {
		case "zero":
			ok = f.IsZero()
		case "set":
			ok = !f.IsZero()
		case "same":
			ok = f.Equal(before.FieldByName(name))
		case "new":
			ok = !f.IsZero() && !f.Equal(before.FieldByName(name))
		}
		if !ok {
			r.Fatalf("want %s, got %v in %+v", word, f, got)
		}
	}
}

// addresses checks the names of the latest snapshot's socket: "network", and "listening" where it
// listens.
func (r *run) addresses(a []string) {
	what, want := outcome(a)
	if what[len(what)-1] == "forged" {
		r.seen = info{Socket: r.handle(what[0]).Handle()}
	}
	got, err := debug.Addresses(r.p(), &r.seen)
	if r.errors(err, want); err != nil {
		return
	}
	local, remote := addressOf(r.handle(what[0])), ""
	listening := len(what) > 2 && what[2] == "listening"
	if peer := r.peers[r.handle(what[0])]; peer != nil {
		remote = addressOf(peer)
	}
	if got.Network != what[1] || got.Local != local || got.Listening != listening ||
		!listening && got.Remote != remote {
		r.Fatalf("%+v; want %s, from %s to %s", got, what[1], local, remote)
	}
}

func addressOf(h handle) string {
	if s, ok := h.(*socket); ok {
		return s.LocalAddr().String()
	}
	return h.(netConn).LocalAddr().String()
}

// traced checks all that a trace has recorded: a kind, a socket, events and data=, or only how
// many.
func (r *run) traced(a []string) {
	if n, err := strconv.Atoi(a[len(a)-1]); err == nil {
		if got := r.traces[a[0]].Read(make([]debug.TraceEntry, n+1)); got != n {
			r.Fatalf("%d entries traced; want %d", got, n)
		}
		return
	}
	var want []debug.TraceEntry
	kinds := map[string]debug.TraceKind{
		"registered": debug.TraceRegistered, "notified": debug.TraceNotified,
		"posted": debug.TracePosted, "removed": debug.TraceRemoved,
	}
	for _, words := range lists(a[1:], ",") {
		if len(words) == 0 {
			break
		}
		kind, ok := kinds[words[0]]
		if !ok {
			r.Fatalf("unknown entry %q", words[0])
		}
		w := debug.TraceEntry{Kind: kind}
		for _, word := range words[1:] {
			ev, isEvents := mask(word, eventNames)
			data, isData := strings.CutPrefix(word, "data=")
			switch {
			case isEvents:
				w.Events = ev
			case isData:
				w.Data = uintptr(r.number(data))
			default:
				w.Socket = r.handle(word).Handle()
			}
		}
		want = append(want, w)
	}
	tr := r.traces[a[0]]
	got := make([]debug.TraceEntry, len(want)+1)
	got = got[:tr.Read(got)]
	if len(got) != len(want) || tr.Lost() != 0 {
		r.Fatalf("%d lost, got %+v; want %+v", tr.Lost(), got, want)
	}
	for i, g := range got {
		if g.Time.IsZero() || (g.ID != 0) != (want[i].Socket != 0) {
			r.Fatalf("entry %d: %+v", i, g)
		}
		if g.Time, g.ID = want[i].Time, 0; g != want[i] {
			r.Fatalf("entry %d: %+v; want %+v", i, g, want[i])
		}
	}
}
