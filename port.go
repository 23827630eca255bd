package socknotify

import (
	"reflect"
	"runtime"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/port"
)

// A Port is a queue from which notifications of sockets, removals and posted completions are dequeued: Winsock's I/O
// completion port with socket notifications. K is the type of the keys: a pointer to a context, an interface that several
// context types implement, or a number.
//
// All methods may be called by any number of goroutines at once. [New] makes a Port; the zero value is not usable, and a
// Port must not be copied. A Port that is dropped without [Port.Close] is cleaned up by the garbage collector.
type Port[K comparable] struct {
	port    port.Port // first, so that a weak pointer to it is one to the whole
	keys    keys[K]
	cleanup runtime.Cleanup
}

// New makes a port (CreateIoCompletionPort). The error is errors.ErrUnsupported for a backend that this system does not
// have, and the system's error if descriptors or memory run out.
func New[K comparable](opts ...Option) (*Port[K], error) {
	var o options
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}
	b, err := choose(&o)
	if err != nil {
		return nil, err
	}
	k, err := b.Open()
	if err != nil {
		return nil, &newError{b.Name, err}
	}
	p := newPort[K](k, b.Name)
	p.port.Core.SetStrict(o.Strict)
	return p, nil
}

// newPort makes a port on a backend, which it owns from here on.
func newPort[K comparable](k backend.Poller, backend string) *Port[K] {
	p := new(Port[K])
	p.keys.oddKeys = hasOddKeys(reflect.TypeFor[K]())
	p.port.Init(k, backend, &p.keys, port.QueueEnds{In: &p.keys.queue.in.Turnstile, Out: &p.keys.queue.out.Turnstile}, p.keys.oddKeys)
	p.cleanup = runtime.AddCleanup(&p.port, (*port.Core).Abandon, p.port.Core)
	return p
}

// newError is the error of New if the system refused.
type newError struct {
	backend string
	err     error
}

func (e *newError) Error() string { return "socknotify: new " + e.backend + " port: " + e.err.Error() }
func (e *newError) Unwrap() error { return e.err }

// hasOddKeys reports whether a comparable type has values whose comparison panics, or that do not equal themselves.
func hasOddKeys(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return true
	case reflect.Array:
		return hasOddKeys(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if hasOddKeys(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}

// Close closes the port (CloseHandle). It wakes every waiter, whose call returns ErrClosed, waits until no call is inside the
// port, and then closes the port's descriptors. Sockets stay open. Keys are released. Posts, removals and completions that
// were not dequeued are dropped. The buffers of operations in flight belong to their callers again, and these operations
// never complete; Close waits for reads and writes of files that have begun.
//
// Every later call returns ErrClosed, and a second Close the result of the first. Close must not be called from within a
// call on the same port, such as from a method of a [Registration.Conn].
func (p *Port[K]) Close() error {
	p.cleanup.Stop()
	p.port.Core.Closed.Store(true)
	p.keys.queue.close()
	err := p.port.Close()
	runtime.KeepAlive(p)
	return err
}

// Backend returns the name of the port's backend, one of [Backends].
func (p *Port[K]) Backend() string { return p.port.Core.Backend }

// Post queues a completion with a key and a number for one waiter (PostQueuedCompletionStatus). It never blocks. The posts of
// one goroutine are dequeued in order. What happens before Post happens before the return of the call that dequeues it.
// The error is nil or ErrClosed.
func (p *Port[K]) Post(key K, data uintptr) error {
	if !p.keys.queue.push(Notification[K]{Key: key, Data: data, kind: port.Posted}) {
		return ErrClosed
	}
	p.port.Waiters.WakeOne(nil)
	runtime.KeepAlive(p)
	return nil
}
