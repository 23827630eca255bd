//go:build linux && cgo && !386 && !arm && !mips && !mipsle

// The C library: Windows' completion ports with socket state notifications, for programs in C and C++ on Linux. It is
// built with -buildmode=c-shared or c-archive; see docs/c.md.
//
// The C files check arguments, block, and keep what belongs to a thread. The Go files have the ports. Go keeps no thread of
// the program blocked.
package main

/*
#cgo CFLAGS: -std=gnu11 -Wall -Wextra -Wno-unused-parameter
#include "sn.h"
*/
import "C"

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	_ "github.com/socknotify/socknotify/c/win32" // C files that are linked in
	"github.com/socknotify/socknotify/internal/kernel/port"
)

func main() {}

// A key is what comes back with a notification. Registrations have no OVERLAPPED.
type key struct{ completion, overlapped uintptr }

type (
	notification = socknotify.Notification[key]
	registration = socknotify.Registration[key]
)

// A completionPort is what a port's handle stands for.
type completionPort struct {
	*socknotify.Port[key]
	core   *port.Port
	fd     int      // what a leader waits for
	stand  *standIn // whose fd is, unless it is the backend's
	handle uintptr
	calls  sync.Pool // of *call
	spare  spare     // for AcceptEx
}

// A call has room for what one call converts.
type call struct {
	regs  []registration
	notes []notification
}

// maxNotes is the largest number of entries that one call fills.
const maxNotes = 1024

func (c *call) resize(regs, notes int) {
	if cap(c.regs) < regs {
		c.regs = make([]registration, regs)
	}
	c.regs = c.regs[:regs]
	if notes = min(notes, maxNotes); cap(c.notes) < notes {
		c.notes = make([]notification, notes)
	}
	c.notes = c.notes[:notes]
}

// maxPorts is the number of ports that a process may have at once.
const maxPorts = 1 << 12

var (
	ports       [maxPorts]atomic.Pointer[completionPort]
	portsMu     sync.Mutex
	generations [maxPorts]uint32 // guarded by portsMu
	portsEver   int              // guarded by portsMu: all indexes from here on are unused
	portsTop    atomic.Int32     // portsEver, for closing
)

func portIndex(handle uintptr) uintptr {
	return handle >> C.SN_INDEX_SHIFT & C.SN_INDEX_MASK % maxPorts
}

// find returns the port of a handle, or nil.
func find(handle uintptr) *completionPort {
	p := ports[portIndex(handle)].Load()
	if p == nil || p.handle != handle&^C.SN_TAG_MASK {
		return nil
	}
	return p
}

// moreProcs gives Go twice its processors, unless the environment has GOMAXPROCS. A thread of the program that was in Go keeps
// one until Go's monitor takes it away. With no spare one the monitor does so every 20 microseconds: it wakes as often, and the
// thread's next call has to find another.
var moreProcs = sync.OnceFunc(func() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0))
	}
})

// newPort returns a port without a handle.
func newPort() (*completionPort, error) {
	moreProcs()
	made, err := socknotify.New[key]()
	if err != nil {
		return nil, err
	}
	p := &completionPort{Port: made, core: port.Of(made)}
	if p.fd = p.core.Descriptor(); p.fd < 0 {
		if p.stand, err = newStandIn(p.core.Core.Poller); err != nil {
			made.Close()
			return nil, err
		}
		p.fd, p.core.Core.Park = p.stand.fd, p.stand.park
	}
	p.core.Core.Completed, p.core.Core.Spare = completed, p.spare.accept
	p.calls.New = func() any { return new(call) }
	if !p.core.Core.Edges {
		C.sn_set_edgeless()
	}
	return p, nil
}

//export snGoNewPort
func snGoNewPort(handle *C.uintptr_t) C.uint32_t {
	p, err := newPort()
	if err != nil {
		return creationCode(err)
	}
	portsMu.Lock()
	defer portsMu.Unlock()
	index := 0
	for index < maxPorts && ports[index].Load() != nil {
		index++
	}
	if index == maxPorts {
		p.close()
		return C.ERROR_TOO_MANY_OPEN_FILES
	}
	portsEver = max(portsEver, index+1)
	portsTop.Store(int32(portsEver))
	generations[index]++
	p.handle = uintptr(generations[index])<<C.SN_GENERATION_SHIFT | C.SN_KIND_PORT<<C.SN_KIND_SHIFT |
		uintptr(index)<<C.SN_INDEX_SHIFT
	ports[index].Store(p)
	*handle = C.uintptr_t(p.handle)
	return C.ERROR_SUCCESS
}

//export snGoClosePort
func snGoClosePort(handle C.uintptr_t) C.uint32_t {
	p := find(uintptr(handle))
	if p == nil || !ports[portIndex(p.handle)].CompareAndSwap(p, nil) {
		return C.ERROR_INVALID_HANDLE
	}
	p.close()
	dropOperations(p)
	return C.ERROR_SUCCESS
}

func (p *completionPort) close() {
	if p.stand != nil {
		p.core.SuspendHelper() // which may be parked in its place
		p.stand.stop()
		defer unix.Close(p.stand.fd) // Close returns when no thread waits
	}
	p.Close()
	p.spare.close()
}

//export snGoPost
func snGoPost(handle C.uintptr_t, bytes C.uint32_t, completion, overlapped C.uintptr_t) C.uint32_t {
	p := find(uintptr(handle))
	if p == nil {
		return C.ERROR_INVALID_HANDLE
	}
	if p.Post(key{uintptr(completion), uintptr(overlapped)}, uintptr(bytes)) != nil {
		return C.ERROR_INVALID_HANDLE
	}
	return C.ERROR_SUCCESS
}

// snGoProcess registers, and dequeues what is there. If that is nothing and the timeout is not 0, it makes the thread a
// waiter and returns SN_WAIT. The thread must then wait until its alert is signaled, or *readable is readable, or the time
// has passed, and call snGoWait.
//
//export snGoProcess
func snGoProcess(handle C.uintptr_t, count C.uint32_t, regs *C.SOCK_NOTIFY_REGISTRATION, timeout C.uint32_t,
	entryCount C.uint32_t, entries *C.OVERLAPPED_ENTRY, got *C.uint32_t, alertID C.uint32_t, alertFD C.int, readable *C.int) C.uint32_t {
	p := find(uintptr(handle))
	if p == nil {
		return C.ERROR_INVALID_HANDLE
	}
	if count == 0 && timeout != 0 {
		return waiterOf(uint32(alertID)).begin(p, int(alertFD), entries, int(entryCount), got, readable)
	}
	c := p.calls.Get().(*call)
	defer p.calls.Put(c)
	c.resize(int(count), int(entryCount))
	from := unsafe.Slice(regs, int(count))
	for i := range from {
		r := &from[i]
		c.regs[i] = registration{
			Handle: uintptr(r.socket), Key: key{completion: uintptr(r.completionKey)}, Filter: socknotify.Events(r.eventFilter),
			Op: socknotify.Op(r.operation), Trigger: socknotify.Trigger(r.triggerFlags),
		}
	}
	n, err := p.Process(c.regs, c.notes, 0)
	if err == nil || err == socknotify.ErrTimeout {
		for i := range from {
			from[i].registrationResult = 0
			if e := c.regs[i].Result; e != nil {
				from[i].registrationResult = registrationCode(e)
			}
		}
	}
	for err == nil && entryCount > 0 {
		if n = p.fill(entries, c.notes[:n]); n > 0 {
			break
		}
		n, err = p.Process(nil, c.notes, 0) // what was dequeued was for the library
	}
	if err == socknotify.ErrTimeout && timeout != 0 {
		return waiterOf(uint32(alertID)).begin(p, int(alertFD), entries, int(entryCount), got, readable)
	}
	*got = C.uint32_t(n)
	return callCode(err)
}

// fill converts notifications. It returns the number of entries, which is smaller if some were for the library.
func (p *completionPort) fill(entries *C.OVERLAPPED_ENTRY, notes []notification) int {
	to := unsafe.Slice(entries, len(notes))
	n := 0
	for i := range notes {
		nt := &notes[i]
		e := &to[n]
		var status uintptr
		switch nt.Kind() {
		case socknotify.KindPosted:
			if nt.Data&ownPost != 0 {
				status = posted(nt)
			}
			e.dwNumberOfBytesTransferred = C.DWORD(nt.Data)
		case socknotify.KindCompleted:
			var ok bool
			if status, ok = p.complete(nt); !ok {
				continue
			}
			e.dwNumberOfBytesTransferred = C.DWORD(nt.Data)
		default:
			e.dwNumberOfBytesTransferred = C.DWORD(nt.Events)
			nt.Key.overlapped = 0
		}
		e.Internal = C.ULONG_PTR(status)
		e.lpCompletionKey = C.ULONG_PTR(nt.Key.completion)
		*(*uintptr)(unsafe.Pointer(&e.lpOverlapped)) = nt.Key.overlapped // any number that was posted
		n++
	}
	clear(notes)
	return n
}
