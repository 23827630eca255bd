//go:build linux && cgo && !386 && !arm && !mips && !mipsle

package main

/*
#include "sn.h"
*/
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/port"
)

// A waiter is the Go side of a thread that waits outside Go. C code names it by the number of its alert. Only the thread
// that has the alert uses it.
type waiter struct {
	alert func()
	port  *completionPort // while the thread waits
	call  *port.Call
	leads bool // it waits for the port's descriptor
	notes []notification
}

var (
	waiters   atomic.Pointer[[]*waiter] // by the number of the alert; the slice is not changed
	waitersMu sync.Mutex
)

// waiterOf returns a waiter by the number of its alert.
func waiterOf(id uint32) *waiter {
	if list := waiters.Load(); list != nil && int(id) < len(*list) {
		return (*list)[id]
	}
	waitersMu.Lock()
	defer waitersMu.Unlock()
	var list []*waiter
	if old := waiters.Load(); old != nil {
		list = append(list, *old...)
	}
	for len(list) <= int(id) {
		list = append(list, new(waiter))
	}
	waiters.Store(&list)
	return list[id]
}

var one = [8]byte{1} // of either byte order it is more than 0

// begin makes the thread a waiter.
func (w *waiter) begin(p *completionPort, alert int, entries *C.OVERLAPPED_ENTRY, entryCount int, got *C.uint32_t, readable *C.int) C.uint32_t {
	if w.alert == nil {
		w.alert = func() { unix.Write(alert, one[:]) }
	}
	if w.call = p.core.Begin(); w.call == nil {
		return C.ERROR_ABANDONED_WAIT_0
	}
	w.port = p
	if entryCount = min(entryCount, maxNotes); cap(w.notes) < entryCount {
		w.notes = make([]notification, entryCount)
	}
	return w.poll(entries, entryCount, false, got, readable)
}

// snGoWait polls for a thread that has waited. The result is that of snGoProcess.
//
//export snGoWait
func snGoWait(id C.uint32_t, entries *C.OVERLAPPED_ENTRY, entryCount C.uint32_t, over C.bool, got *C.uint32_t, readable *C.int) C.uint32_t {
	return waiterOf(uint32(id)).poll(entries, min(int(entryCount), maxNotes), bool(over), got, readable)
}

func (w *waiter) poll(entries *C.OVERLAPPED_ENTRY, entryCount int, over bool, got *C.uint32_t, readable *C.int) C.uint32_t {
	p, notes := w.port, w.notes[:entryCount]
	for {
		if w.leads && p.stand != nil {
			p.stand.drain()
		}
		n, lead, err := p.core.PollOutside(w.call, port.EntriesOf(unsafe.Pointer(unsafe.SliceData(notes)), len(notes)), w.alert, over)
		if p.stand != nil && n > 0 {
			p.stand.polled()
		}
		w.leads = lead && n == 0
		switch {
		case n > 0:
			if n = p.fill(entries, notes[:n]); n == 0 {
				continue // it was for the library
			}
			*got = C.uint32_t(n)
		case err == nil:
			*readable = -1
			if lead {
				*readable = C.int(p.fd)
				if p.stand != nil {
					p.stand.ask()
				}
			}
			return C.SN_WAIT
		}
		p.core.End(w.call)
		w.call, w.port = nil, nil
		return callCode(err)
	}
}
