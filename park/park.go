package park

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/socknotify/socknotify"
)

// ErrParked is returned by Park when the connection is already parked.
var ErrParked = errors.New("already parked")

// ErrUnparkable is returned by Park for a connection that cannot be parked. Its read deadline was cleared, and it can be
// used as before. errors.Is(ErrUnparkable, socknotify.ErrInvalid) is true.
var ErrUnparkable = fmt.Errorf("the connection cannot be parked: %w", socknotify.ErrInvalid)

// Options are the options of [Lot.ParkWith].
type Options struct {
	// IdleTimeout overrides Config.IdleTimeout. 0 uses the lot's timeout; a negative value means no timeout.
	IdleTimeout time.Duration
	// Reader is the reader through which the function reads the connection, if there is one. If it has
	// buffered bytes, the function runs immediately.
	Reader *bufio.Reader
	// Writable makes the function run also when a Write would not block, for a program that has queued what the
	// connection did not take. The function then has possibly nothing to read.
	Writable bool

	fresh bool // nothing was read from the connection since it was accepted
}

// Park parks an idle connection. f runs once, on a goroutine of the lot, when a Read of the connection would not
// block:
//
//   - The connection has bytes, the peer has closed it, or it has failed.
//   - The idle timeout has expired. Read fails with os.ErrDeadlineExceeded.
//   - The connection was closed by [Lot.CloseConn], or because the lot was closed. Read fails with net.ErrClosed.
//
// In rare cases f runs although there is nothing to read, and Read blocks.
//
// The caller must not use the connection after Park, because f may already be running. If Park fails, f never runs
// and the caller still owns the connection. Park clears the read deadline and leaves the write deadline unchanged.
//
// The socket below a wrapped connection is what Config.Unwrap returns, what the methods NetConn, Unwrap, Raw and TCPConn
// return, or an embedded connection, through any number of layers, down to one with a SyscallConn method. Such a wrapper
// may hold bytes that it has read. So Park reads from it with a deadline in the past, which does not touch the socket.
// Bytes mean that the connection is not idle, and f runs immediately. os.ErrDeadlineExceeded means that it has none. Park
// fails with [ErrUnparkable] if there is any other error that does not end the connection, or if no socket is found. The
// lot logs the first such connection of each type.
//
// A *net.TCPConn or *net.UnixConn is passed to f unchanged. For any other connection f receives a [*Conn] around it. The
// program must use that Conn from then on, because the Conn may hold bytes that were read ahead. A program that wants f to
// receive the connection that it parked calls [Wrap] first and uses the result everywhere. A program that reads the
// connection through a bufio.Reader must use [Lot.ParkWith] for the same reason.
//
// A function that parks its connection should return soon. If the connection is a [*Conn] that holds bytes, or whose
// bytes arrive in quick succession, the worker that runs f also runs the next call, after f has returned. If f takes
// more than 5 milliseconds to return, another worker runs the next call, about 10 milliseconds after Park at most.
//
// A panic in f ends the process, as in any goroutine. runtime.Goexit ends f alone.
//
// Park fails with ErrClosed, ErrParked, ErrUnparkable, and with the errors of the port and the operating system, such as
// net.ErrClosed.
func (l *Lot) Park(conn net.Conn, f func(net.Conn)) error {
	return l.ParkWith(conn, Options{}, f)
}

// ParkWith is [Lot.Park] with options.
func (l *Lot) ParkWith(conn net.Conn, o Options, f func(net.Conn)) error {
	if f == nil {
		return fmt.Errorf("park: %w: nil function", socknotify.ErrInvalid)
	}
	idle := o.IdleTimeout
	if idle == 0 {
		idle = l.config.IdleTimeout
	}
	immediate := o.Reader != nil && o.Reader.Buffered() > 0
	checked := false
	if c, ok := conn.(*Conn); ok {
		var done bool
		if o.Writable {
			immediate = immediate || c.hasBytesAhead()
		} else if done, checked, immediate = l.keep(c, f, idle, immediate); done {
			return nil
		}
	}
	s, err := l.find(conn)
	if err != nil {
		return l.refuse(conn, err)
	}
	if !l.enter() { // before readAhead, whose bytes would be lost
		return ErrClosed
	}
	registering := false
	defer func() {
		if !registering { // a method of the connection failed or panicked
			l.leave()
		}
	}()
	how := onInput
	if !s.Plain {
		c, wrapped := conn.(*Conn)
		if !wrapped {
			if pc := l.findConn(conn); pc != nil && pc.isPending() {
				return fmt.Errorf("park: %w", ErrParked) // bytes in a second Conn would be lost
			}
			c = Wrap(conn)
		}
		conn = c
		switch {
		case immediate:
		case s.Lazy && c.parkedConn.Load() == nil:
			c.mu.Lock()
			c.unsettled = true
			c.mu.Unlock()
			if !o.fresh || l.holdsBytes(c) {
				how = settling
			}
		case !checked:
			if immediate, err = c.readAhead(l.config.Unwrap); err != nil {
				c.SetReadDeadline(time.Time{})
				return l.refuse(c.Conn, fmt.Errorf("park: %w: %w", ErrUnparkable, err))
			}
		}
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("park: %w", err)
	}
	if immediate {
		how = atOnce
	}
	registering = true
	return l.leaveOnError(l.register(&parkRequest{base: s.Conn, raw: s.Raw, conn: conn, f: f, idle: idle, how: how,
		writable: o.Writable}))
}

// park parks a connection that holds no bytes.
func (l *Lot) park(p *parkRequest) error {
	if !l.enter() {
		return ErrClosed
	}
	return l.leaveOnError(l.register(p))
}

// leaveOnError undoes enter if err is not nil.
func (l *Lot) leaveOnError(err error) error {
	if err == nil {
		return nil
	}
	l.leave()
	return fmt.Errorf("park: %w", err)
}

// A parkRequest holds the arguments of one call of Park.
type parkRequest struct {
	base     syscall.Conn
	raw      syscall.RawConn
	conn     net.Conn
	f        func(net.Conn)
	idle     time.Duration // no timeout if 0 or less
	writable bool          // f runs also when a Write would not block
	how      manner
}

// A manner says what a parked connection waits for.
type manner uint8

const (
	onInput  manner = iota // its socket
	atOnce                 // a worker, because Read would return without the socket
	settling               // a worker that settles it first (see settle.go)
	settled                // its socket, in the same Park, after a worker has settled it
)

// A registrar registers a descriptor with the lot's port. It does so inside Control, so that the descriptor cannot be
// closed concurrently.
type registrar struct {
	lot     *Lot
	request parkRequest
	kept    *parkedConn // a kept connection to enable (see stream.go), or nil
	regs    [1]socknotify.Registration[*parkedConn]
	err     error
	control func(uintptr)
}

func newRegistrar(l *Lot) *registrar {
	a := &registrar{lot: l}
	a.control = func(number uintptr) {
		if a.kept != nil {
			a.err = a.enable(a.kept, number)
			return
		}
		a.err = a.park(number)
	}
	return a
}

// release returns a to the pool.
func (a *registrar) release() {
	a.request, a.kept, a.regs[0], a.err = parkRequest{}, nil, socknotify.Registration[*parkedConn]{}, nil
	a.lot.registrars.Put(a)
}

// register parks the connection of p.
func (l *Lot) register(p *parkRequest) error {
	a := l.registrars.Get().(*registrar)
	a.request, a.err = *p, nil
	err := p.raw.Control(a.control)
	if err == nil {
		err = a.err
	}
	a.release()
	return err
}

// registration returns a registration of a descriptor. A program that has closed its standard input can have a connection
// with the number 0, which a port does not take as a Handle.
func registration(number uintptr, op socknotify.Op) socknotify.Registration[*parkedConn] {
	r := socknotify.Registration[*parkedConn]{Handle: number, Op: op}
	if number == 0 {
		r.Conn = descriptorZero{}
	}
	return r
}

// descriptorZero is a connection with the descriptor 0. As with a Handle, the lot knows when the descriptor is open.
type descriptorZero struct{}

func (d descriptorZero) SyscallConn() (syscall.RawConn, error) { return d, nil }
func (descriptorZero) Control(f func(fd uintptr)) error        { f(0); return nil }
func (descriptorZero) Read(func(fd uintptr) bool) error        { return errors.ErrUnsupported }
func (descriptorZero) Write(func(fd uintptr) bool) error       { return errors.ErrUnsupported }

// enable registers the descriptor for one notification when it becomes readable.
func (a *registrar) enable(pc *parkedConn, number uintptr) error {
	r := registration(number, socknotify.OpEnable)
	r.Key = pc
	r.Filter = socknotify.EventIn | socknotify.EventHangup
	if a.request.writable {
		r.Filter |= socknotify.EventOut
	}
	r.Trigger = socknotify.TriggerLevel | socknotify.TriggerOneShot
	a.regs[0] = r
	_, err := a.lot.port.Process(a.regs[:], nil, 0)
	if err == nil {
		err = a.regs[0].Result
	}
	return err
}

// park parks the connection of a.request, which is new to the lot or has been parked before. number is its
// descriptor.
func (a *registrar) park(number uintptr) error {
	entry := a.lot.conns.at(number)
	pc, err := a.parkExisting(entry, number)
	if pc == nil {
		return a.parkNew(entry, number)
	}
	a.deregister(entry, pc, number)
	return err
}

// deregister undoes register if Unpark has removed pc from the table since setParked. It does nothing if another
// record has taken the entry, because the registration then belongs to that record.
func (a *registrar) deregister(entry *atomic.Pointer[parkedConn], pc *parkedConn, number uintptr) {
	if !pc.isRemoved() {
		return
	}
	a.lot.conns.mu.Lock()
	defer a.lot.conns.mu.Unlock()
	if entry.Load() == nil {
		a.lot.port.Deregister(registration(number, socknotify.OpRemove))
	}
}

// parkExisting parks a connection that has a record in the table. It returns nil if there is none.
func (a *registrar) parkExisting(entry *atomic.Pointer[parkedConn], number uintptr) (*parkedConn, error) {
	for {
		pc := entry.Load()
		if pc == nil || pc.base != a.request.base {
			return nil, nil
		}
		switch a.setParked(pc) {
		case unparked:
			return pc, a.register(pc, number)
		case parked:
			return pc, ErrParked
		}
		// Unpark has removed pc from the table: load the entry again.
	}
}

// parkNew parks a connection that has no record, and adds one. If the table has an old record for the number, its
// connection is closed, or it is another Go value for the same socket.
func (a *registrar) parkNew(entry *atomic.Pointer[parkedConn], number uintptr) error {
	l := a.lot
	l.conns.mu.Lock()
	defer l.conns.mu.Unlock()
	if pc, err := a.parkExisting(entry, number); pc != nil {
		return err
	}
	old := entry.Load()
	pc := &parkedConn{base: a.request.base, raw: a.request.raw}
	a.setParked(pc)
	err := a.register(pc, number)
	if errors.Is(err, socknotify.ErrKeyMismatch) {
		if old != nil && old.isPending() {
			return ErrParked
		}
		// The socket is still registered with the record of another value for the same socket.
		a.regs[0] = registration(number, socknotify.OpRemove)
		l.port.Process(a.regs[:], nil, 0)
		a.setParked(pc)
		err = a.register(pc, number)
	}
	if err != nil {
		return err
	}
	for !l.conns.put(entry, old, pc) {
		old = entry.Load() // the sweeper has removed old
	}
	if old != nil {
		l.dispatch(old, readable)
	}
	if l.closing.Load() {
		l.dispatch(pc, evicted) // Close may have read the table before put
	}
	l.sweep.begin(l)
	return nil
}

// setParked marks pc as parked, or as queued if it is posted to a worker. It must be called before the descriptor is
// enabled, so that a notification finds the connection parked. It returns unparked if it succeeded. Otherwise pc is
// unchanged, and setParked returns parked if a call is pending already, or removed.
func (a *registrar) setParked(pc *parkedConn) state {
	l, p := a.lot, &a.request
	pc.mu.Lock()
	defer pc.mu.Unlock()
	switch pc.state {
	case unparked:
	case removed:
		return removed
	default:
		return parked
	}
	pc.state, pc.conn, pc.fn, pc.parkedAt = parked, p.conn, p.f, l.instant()
	l.stats.parked.Add(1)
	if p.how != settled {
		l.stats.parks.Add(1)
	}
	if p.how == atOnce {
		l.stats.atOnce.Add(1)
	} else if p.idle > 0 {
		pc.due = time.Since(l.start) + p.idle
	}
	if p.posted() {
		pc.state = queued
		l.port.Post(pc, 0)
	} else if p.idle > 0 {
		l.wheel.Set(pc, p.idle)
	}
	return unparked
}

func (pc *parkedConn) isRemoved() bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.state == removed
}

func (pc *parkedConn) isPending() bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.pending()
}

// pending reports whether a call of the function is pending. The caller holds pc.mu.
func (pc *parkedConn) pending() bool {
	return pc.state == parked || pc.state == queued || pc.state == kept
}

// posted reports whether the connection is posted to a worker, and needs no registration.
func (p *parkRequest) posted() bool { return p.how == atOnce || p.how == settling }

// register enables the descriptor of a connection that setParked has marked, unless the connection was posted.
func (a *registrar) register(pc *parkedConn, number uintptr) error {
	if a.request.posted() {
		return nil
	}
	if err := a.enable(pc, number); err != nil {
		if a.lot.cancel(pc) {
			return err
		}
		// The idle timeout or Close has dispatched pc already, and its function runs.
	}
	if a.lot.closing.Load() {
		a.lot.dispatch(pc, evicted)
	}
	return nil
}

// cancel ends a parking whose function has not begun. It reports whether there was one.
func (l *Lot) cancel(pc *parkedConn) bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if !pc.pending() {
		return false
	}
	l.endParking(pc)
	return true
}
