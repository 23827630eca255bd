package kqueue

import (
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

func TestPlan(t *testing.T) {
	var b plan
	c := backend.Change{Action: backend.Set, Interest: forBoth}
	for fd := range batch {
		if !b.takes(fd) {
			t.Fatalf("number %d is not taken", fd)
		}
		b.add(fd, fd, &c, true)
		if b.takes(fd) {
			t.Fatal("the same number is taken twice")
		}
	}
	if b.takes(batch) {
		t.Fatal("more numbers than a batch are taken")
	}
	if len(b.list) > batch*mostSteps {
		t.Fatalf("%d steps", len(b.list))
	}
	b.reset()
	b.add(3, 9, &c, false)
	if len(b.list) != 1 || b.list[0].flags&evAdd != 0 || b.fds[0] != 9 || b.at[0] != 3 {
		t.Fatalf("a number that is not watched: %+v", b.list)
	}
	c.Action = backend.Add
	b.add(4, 10, &c, false)
	if len(b.list) != 4 {
		t.Fatalf("Add: %+v", b.list)
	}
}

func TestTable(t *testing.T) {
	var tb table
	for _, fd := range []int{-1, 0, 1 << 30} {
		if tb.get(fd) != nil {
			t.Fatalf("%d is watched", fd)
		}
		tb.forget(fd)
	}
	for _, fd := range []int{200, 0, 3} {
		tb.made(backend.Add, fd, uint64(fd), forOut)
		if e := tb.get(fd); e == nil || e.token != uint64(fd) || !e.writing {
			t.Fatalf("%d: %+v", fd, e)
		}
	}
	if tb.get(1) != nil || tb.get(201) != nil {
		t.Fatal("a neighbour is watched")
	}
	tb.made(backend.Suppress, 3, 8, 0)
	if e := tb.get(3); e.token != 8 || e.writing || e.interest != 0 {
		t.Fatalf("suppressed: %+v", e)
	}
	tb.made(backend.Delete, 3, 0, 0)
	if tb.get(3) != nil {
		t.Fatal("watched after Delete")
	}
}
