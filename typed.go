package socknotify

import (
	"syscall"
	"unsafe"

	"github.com/socknotify/socknotify/internal/tie"
)

// The port knows no key type. Everything that does is a Port[K], which the port reaches through this interface. A
// record, an overlapped operation and a queued notification are allocated with their key behind them by Port[K], so a
// pointer to one leads to its key.
type typed interface {
	// put writes a notification into entry i.
	put(to entries, i int, pk packet)
	// enqueue appends a notification to the queue, unless the queue is closed.
	enqueue(pk packet)
	// takeQueued moves the oldest queued notifications into entries, ends the operations whose completions are among
	// them, and returns the counts.
	takeQueued(to entries, o *observer) (n, posts, completions int)
	// get returns the kind and the events of entry i.
	get(from entries, i int) (noteKind, Events)

	// newRecord returns a record with a copy of a key. Without a key the record has the zero key.
	newRecord(key unsafe.Pointer) *record
	// sameKey reports whether a record has this key.
	sameKey(rec *record, key unsafe.Pointer) bool
	// checkKey returns an error for a key that can be compared with none.
	checkKey(key unsafe.Pointer) error
}

// A packet is a notification without its key.
type packet struct {
	rec    *record // that has the key; nil for a completion
	of     unsafe.Pointer
	data   uintptr
	events Events
	kind   noteKind
}

// entries is a part of the caller's slice of notifications.
type entries struct {
	base    unsafe.Pointer
	at, end int
}

func (e entries) len() int { return e.end - e.at }

// from returns the entries behind the first n.
func (e entries) from(n int) entries { return entries{e.base, e.at + n, e.end} }

// first returns the first n entries.
func (e entries) first(n int) entries { return entries{e.base, e.at, e.at + n} }

// An entry is a Registration without its key type.
type entry struct {
	handle Socket
	conn   syscall.Conn
	tie    *tie.Tie // of the socket of package sock, where conn is nil
	work   *work    // of Port.Accept, or of a socket with operations
	key    unsafe.Pointer
	result *error // nil: a level that is checked again

	filter  Events
	op      Op
	trigger Trigger
	drained bool
}

// A keyed is a record with its key.
type keyed[K comparable] struct {
	record // first, so that a pointer to it is one to the whole
	key    K
}

func keyOf[K comparable](rec *record) K { return (*keyed[K])(unsafe.Pointer(rec)).key }

// entriesOf returns all entries of a slice.
func entriesOf[K comparable](s []Notification[K]) entries {
	return entries{unsafe.Pointer(unsafe.SliceData(s)), 0, len(s)}
}

func notificationAt[K comparable](e entries, i int) *Notification[K] {
	return (*Notification[K])(unsafe.Add(e.base, uintptr(e.at+i)*unsafe.Sizeof(Notification[K]{})))
}

func (r *Registration[K]) entry() entry {
	e := entry{
		handle: r.Socket, conn: r.Conn, key: unsafe.Pointer(&r.Key), result: &r.Result,
		filter: r.Filter, op: r.Op, trigger: r.Trigger, drained: r.Drained,
	}
	if r.Conn == nil && r.Sock != nil {
		e.tie = r.Sock.Tie()
	}
	return e
}

// notification returns what a packet stands for. The operation of a completion lets go of its key by that.
func notification[K comparable](pk packet) Notification[K] {
	n := Notification[K]{Data: pk.data, Events: pk.events, kind: pk.kind, of: pk.of}
	if pk.kind == completion {
		o := (*Overlapped[K])(pk.of)
		n.Key = o.key
		o.forget()
	} else {
		n.Key = keyOf[K](pk.rec)
	}
	return n
}

func (p *Port[K]) put(to entries, i int, pk packet) {
	n := notificationAt[K](to, i)
	if pk.kind == completion {
		*n = notification[K](pk)
		return
	}
	*n = Notification[K]{Key: keyOf[K](pk.rec), Events: pk.events, kind: pk.kind, of: pk.of}
}

func (p *Port[K]) enqueue(pk packet) { p.queue.push(notification[K](pk)) }

func (p *Port[K]) takeQueued(to entries, o *observer) (n, posts, completions int) {
	out := unsafe.Slice(notificationAt[K](to, 0), to.len())
	n, posts, completions = p.queue.take(out)
	if posts > 0 && o != nil {
		tracePosts(o, out[:n])
	}
	return n, posts, completions
}

func (p *Port[K]) get(from entries, i int) (noteKind, Events) {
	n := notificationAt[K](from, i)
	return n.kind, n.Events
}

func (p *Port[K]) newRecord(key unsafe.Pointer) *record {
	rec := new(keyed[K])
	if key != nil {
		rec.key = *(*K)(key)
	}
	return &rec.record
}

func (p *Port[K]) sameKey(rec *record, key unsafe.Pointer) bool {
	return keyOf[K](rec) == *(*K)(key)
}

func (p *Port[K]) checkKey(key unsafe.Pointer) error {
	if p.oddKeys && !equalsItself(*(*K)(key)) {
		return invalid("Key", "it does not equal itself, or cannot be compared", nil)
	}
	return nil
}

// equalsItself reports whether a key equals itself. A NaN does not, and a comparison may panic.
func equalsItself[K comparable](key K) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	other := key
	return other == key
}
