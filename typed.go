package socknotify

import (
	"syscall"
	"unsafe"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// keys is what a Port[K] has beside its port: the queue, and all that knows the type of the keys.
type keys[K comparable] struct {
	queue queue[K]
	// oddKeys reports that not every key can be compared with itself: K is, or holds, an interface
	// or a number that can be NaN.
	oddKeys bool
}

// entry sets a zero Entry to a registration without the type of its key. It sets one field after
// the other, because a literal would be built elsewhere and copied.
func (r *Registration[K]) entry(e *port.Entry) {
	e.Handle, e.Key, e.Result = r.Handle, unsafe.Pointer(&r.Key), &r.Result
	e.Filter, e.Op = port.Events(r.Filter), port.Op(r.Op)
	e.Trigger, e.Drained = port.Trigger(r.Trigger), r.Drained
	if r.Conn != nil {
		name(e, r.Conn)
	}
}

// name sets the socket of an entry.
func name(e *port.Entry, conn syscall.Conn) {
	s, ok := conn.(*sock.Socket)
	switch {
	case !ok:
		e.Conn = conn
	case s == nil:
		e.Handle = port.NoSocket
	default:
		e.FD = fdstate.Of(s.SyscallConn())
	}
}

// entriesOf returns all entries of a slice.
func entriesOf[K comparable](s []Notification[K]) port.Entries {
	return port.EntriesOf(unsafe.Pointer(unsafe.SliceData(s)), len(s))
}

func notificationAt[K comparable](e port.Entries, i int) *Notification[K] {
	return (*Notification[K])(unsafe.Add(e.Base, uintptr(e.At+i)*unsafe.Sizeof(Notification[K]{})))
}

// note returns what a packet stands for. The record of a completion gives up its key.
func note[K comparable](pk port.Packet) Notification[K] {
	n := Notification[K]{
		Key: port.KeyOf[K](pk.Rec), Data: pk.Data, Events: Events(pk.Events), kind: pk.Kind, of: pk.Of,
	}
	if pk.Kind == port.Completion {
		port.ClearKey[K](pk.Rec)
	}
	return n
}

func (k *keys[K]) Put(to port.Entries, i int, pk port.Packet) {
	n := notificationAt[K](to, i)
	if pk.Kind == port.Completion {
		*n = note[K](pk)
		return
	}
	*n = Notification[K]{
		Key: port.KeyOf[K](pk.Rec), Events: Events(pk.Events), kind: pk.Kind, of: pk.Of,
	}
}

func (k *keys[K]) Enqueue(pk port.Packet) { k.queue.push(note[K](pk)) }

func (k *keys[K]) TakeQueued(to port.Entries) (n, posts, completions int) {
	out := unsafe.Slice(notificationAt[K](to, 0), to.Len())
	return k.queue.take(out)
}

func (k *keys[K]) Get(from port.Entries, i int) (port.NoteKind, port.Events, uintptr) {
	n := notificationAt[K](from, i)
	return n.kind, port.Events(n.Events), n.Data
}

func (k *keys[K]) NewRecord(key unsafe.Pointer) *port.Record {
	rec := new(port.Keyed[K])
	if key != nil {
		rec.Key = *(*K)(key)
	}
	return &rec.Record
}

func (k *keys[K]) SameKey(rec *port.Record, key unsafe.Pointer) bool {
	return port.KeyOf[K](rec) == *(*K)(key)
}

func (k *keys[K]) CheckKey(key unsafe.Pointer) error {
	if k.oddKeys && !equalsItself(*(*K)(key)) {
		return port.Invalid("Key", "it does not equal itself, or cannot be compared", nil)
	}
	return nil
}

// equalsItself reports whether a key equals itself. A NaN does not, and a comparison may panic.
func equalsItself[K comparable](key K) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	other := key
	return other == key
}

func (k *keys[K]) Fail(f port.Failed) error {
	return &OpError{
		Op: Op(f.Op), Handle: f.Socket, Conn: f.Conn, Kind: f.Kind, Err: f.Err, accept: f.Accept,
	}
}
