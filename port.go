package socknotify

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/system"
	"github.com/socknotify/socknotify/internal/kernel/port"
)

// A Port is a queue from which notifications of sockets, removals and posted completions are
// dequeued: Winsock's I/O completion port with socket notifications. K is the type of the keys: a
// pointer to a context, an interface that several context types implement, or a number.
//
// All methods may be called by any number of goroutines at once. [New] makes a Port; the zero value
// is not usable, and a Port must not be copied. A Port that is dropped without [Port.Close] is
// cleaned up by the garbage collector.
type Port[K comparable] struct {
	port    port.Port // first, so that a weak pointer to it is one to the whole
	keys    keys[K]
	cleanup runtime.Cleanup
}

// New makes a port (CreateIoCompletionPort). The error is errors.ErrUnsupported for a backend that
// this system does not have, and the system's error if descriptors or memory run out.
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
	q := &p.keys.queue
	p.port.Init(k, backend, &p.keys,
		port.QueueEnds{In: &q.in.Turnstile, Out: &q.out.Turnstile}, p.keys.oddKeys)
	p.cleanup = runtime.AddCleanup(&p.port, (*port.Core).Abandon, p.port.Core)
	return p
}

// untypedPort returns what port.Of does. Its name is not exported, so no type of another package
// has such a method.
func (p *Port[K]) untypedPort() *port.Port { return &p.port }

var _ = func() struct{} {
	port.Of = func(p any) *port.Port {
		return p.(interface{ untypedPort() *port.Port }).untypedPort()
	}
	return struct{}{}
}()

// newError is the error of New if the system refused.
type newError struct {
	backend string
	err     error
}

func (e *newError) Error() string {
	return "socknotify: new " + e.backend + " port: " + e.err.Error()
}

func (e *newError) Unwrap() error { return e.err }

// hasOddKeys reports whether a comparable type has values whose comparison panics, or that do not
// equal themselves.
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

// Close closes the port (CloseHandle). It wakes every waiter, whose call returns ErrClosed, waits
// until no call is inside the port, and then closes the port's descriptors. Sockets stay open. Keys
// are released. Posts, removals and completions that were not dequeued are dropped. The buffers of
// operations in flight belong to their callers again, and these operations never complete; Close
// waits for reads and writes of files that have begun.
//
// Every later call returns ErrClosed, and a second Close the result of the first. Close must not be
// called from within a call on the same port, such as from a method of a [Registration.Conn].
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

// Post queues a completion with a key and a number for one waiter (PostQueuedCompletionStatus). It
// never blocks. The posts of one goroutine are dequeued in order. What happens before Post happens
// before the return of the call that dequeues it. The error is nil or ErrClosed.
func (p *Port[K]) Post(key K, data uintptr) error {
	if !p.keys.queue.push(Notification[K]{Key: key, Data: data, kind: port.Posted}) {
		return ErrClosed
	}
	p.port.Waiters.WakeOne(nil)
	runtime.KeepAlive(p)
	return nil
}

// BackendEnv is the environment variable with the name of the backend for ports made without
// [WithBackend].
const BackendEnv = "SOCKNOTIFY_BACKEND"

// An Option changes how [New] makes a port.
type Option func(*options)

type options = system.Options

// WithBackend chooses the backend by its name, one of [Backends]. It overrides BackendEnv. An empty
// name is the same as no WithBackend.
//
// For any other name the error of New is [errors.ErrUnsupported] and says why.
func WithBackend(name string) Option {
	return func(o *options) { o.Name = name }
}

// Backends returns the names of this system's backends, the default first. It is empty if the
// system is not supported.
func Backends() []string {
	var names []string
	for _, r := range system.List() {
		names = append(names, r.Name)
	}
	return names
}

// choose returns the backend to open: that which an option or the environment names, or else the
// default.
func choose(o *options) (system.Backend, error) {
	if o.Backend != nil {
		return *o.Backend, nil
	}
	name, from := o.Name, "WithBackend"
	if name == "" {
		name, from = os.Getenv(BackendEnv), BackendEnv
	}
	list := system.List()
	if len(list) == 0 {
		return system.Backend{}, fmt.Errorf("socknotify: no backend for this system yet: %w",
			errors.ErrUnsupported)
	}
	if name == "" {
		return list[0], nil
	}
	if r, ok := system.Find(name); ok {
		return r, nil
	}
	return system.Backend{}, fmt.Errorf(
		"socknotify: %s: backend %q is not available: %w; this system has %s",
		from, name, system.Absent(name), strings.Join(Backends(), ", "))
}

// WithStrictEdge makes edge notifications as rare as the contract allows, which is how Windows
// reports them. A program that waits for an edge that Windows does not report then waits forever in
// its tests, on any system. An edge registration is notified of a condition of its filter only when
// the condition begins to hold. It is not notified at OpEnable if the condition held already, nor
// again of data that arrives while the socket has not been drained. Errors are always reported.
//
// The port must learn when a socket has been drained: a sock.Socket reports it by itself, and any
// other socket is enabled again with Drained.
//
// It is meant for tests. Enabling costs two more system calls.
func WithStrictEdge() Option {
	return func(o *options) { o.Strict = true }
}

// Stats are a port's counts since it was made, except for those of the present. Each count is
// exact, but they are not taken at the same instant.
type Stats struct {
	// Registrations counts present registrations, including those of closed sockets that the port
	// has not noticed, and sockets with operations.
	Registrations int64
	Notifications uint64 // socket notifications dequeued, without removals
	Accepted      uint64 // of these, connections accepted
	Completions   uint64 // of these, completions of operations
	Removals      uint64 // EventRemove notifications dequeued
	Posts         uint64 // completions posted
	PostsDequeued uint64 // posted completions dequeued
	Queued        int64  // posts, removals and completions that wait at present
	Waiting       int    // calls that wait at present
	Wakeups       uint64 // waiters woken
	Rearms        uint64 // enables of existing registrations that made a system call
	FastEnables   uint64 // enables of existing registrations without a system call
	Stale         uint64 // reports dropped because their registration had ended or changed
}

// Stats returns the port's counts. It may be called at any time, also after Close.
func (p *Port[K]) Stats() Stats {
	s := Stats(p.port.Stats())
	s.Posts, s.Queued = p.keys.queue.posted(), p.keys.queue.size()
	runtime.KeepAlive(p)
	return s
}
