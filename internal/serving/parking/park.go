package parking

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/durations"
)

// Options are the options of [Lot.ParkWith].
type Options struct {
	IdleTimeout time.Duration // overrides Config.IdleTimeout; 0 uses that, a negative value means none
	Reader      *bufio.Reader // through which the function reads; nil if it has none
	Writable    bool          // the function runs also when a Write would not block
	Fresh       bool          // nothing was read from the connection since it was accepted
	Deaf        bool          // with Writable: the function does not run for something to read
}

// Park parks an idle connection, as park.Lot.Park describes.
func (l *Lot) Park(conn net.Conn, f func(net.Conn)) error {
	return l.ParkWith(conn, Options{}, f)
}

// ParkWith is Park with options.
func (l *Lot) ParkWith(conn net.Conn, o Options, f func(net.Conn)) error {
	if f == nil {
		return fmt.Errorf("park: %w: nil function", socknotify.ErrInvalid)
	}
	idle := cmp.Or(o.IdleTimeout, l.config.IdleTimeout)
	immediate := o.Reader != nil && o.Reader.Buffered() > 0
	checked := o.Deaf
	if c, ok := conn.(*Conn); ok && !o.Deaf {
		var done bool
		if o.Writable {
			immediate = immediate || HasBytesAhead(c)
		} else {
			var err error
			if done, checked, immediate, err = l.keep(c, f, idle, immediate); done || err != nil {
				return err
			}
		}
	}
	s, err := l.Find(conn)
	if err != nil {
		return l.Refuse(conn, err)
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
	p := Request{Base: s.Conn, Raw: s.Raw, F: f, Idle: idle, Await: o.await()}
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
		case c.mustSettle(s.Lazy):
			p.unsettled = true
			p.Posted = !o.Fresh || l.holdsBytes(c)
		case !checked:
			if immediate, err = c.readAhead(l); err != nil {
				c.SetReadDeadline(time.Time{})
				if serving.IsPanic(err) {
					return err
				}
				return l.Refuse(c.Conn, fmt.Errorf("park: %w: %w", ErrUnparkable, err))
			}
		}
	}
	if !o.Deaf { // otherwise another goroutine may be reading
		if err := conn.SetReadDeadline(time.Time{}); err != nil {
			return fmt.Errorf("park: %w", err)
		}
	}
	p.Conn, p.Posted = conn, p.Posted || immediate
	registering = true
	return l.leaveOnError(l.register(&p))
}

// ParkSocket parks a connection that holds no bytes.
func (l *Lot) ParkSocket(p *Request) error {
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

// A Request holds the arguments of one call of Park.
type Request struct {
	Base      syscall.Conn
	Raw       syscall.RawConn
	Conn      net.Conn
	F         func(net.Conn)
	Idle      time.Duration // no timeout if 0 or less
	Await     Awaited       // what makes f run; 0 is AwaitRead
	unsettled bool          // a worker settles the connection before f runs (see proxyheader.go)
	Posted    bool          // a worker is needed now: f runs, or the connection is settled
}

// await returns what the connection waits for.
func (o *Options) await() Awaited {
	switch {
	case o.Deaf:
		return AwaitWrite
	case o.Writable:
		return AwaitRead | AwaitWrite
	}
	return AwaitRead
}

// A registrar registers a descriptor with the lot's port. It does so inside Control, so that the descriptor cannot be
// closed concurrently.
type registrar struct {
	lot     *Lot
	request Request
	kept    *parkedConn // a kept connection to enable (see steady.go), or nil
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
	a.request, a.kept, a.regs[0], a.err = Request{}, nil, socknotify.Registration[*parkedConn]{}, nil
	a.lot.registrars.Put(a)
}

// register parks the connection of p.
func (l *Lot) register(p *Request) error {
	a := l.registrars.Get().(*registrar)
	a.request, a.err = *p, nil
	err := p.Raw.Control(a.control)
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

// enable registers the descriptor for one notification of what pc waits for. The caller holds pc.mu.
func (a *registrar) enable(pc *parkedConn, number uintptr) error {
	r := registration(number, socknotify.OpEnable)
	r.Key = pc
	r.Filter = pc.await.filter()
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
	l := a.lot
	entry := l.conns.at(number)
	pc, err := a.parkExisting(entry, number)
	if pc == nil {
		pc, err = a.parkNew(entry, number)
	}
	if err == nil && l.closing.Load() {
		l.dispatch(pc, Evicted) // Close may have visited pc before it was parked, or the table before pc was in it
	}
	return err
}

// parkExisting parks a connection that has a record in the table. It returns nil if there is none.
func (a *registrar) parkExisting(entry *atomic.Pointer[parkedConn], number uintptr) (*parkedConn, error) {
	for {
		pc := entry.Load()
		if pc == nil || pc.base != a.request.Base {
			return nil, nil
		}
		if was, err := a.begin(pc, number); was != removed {
			return pc, err
		}
		// Unpark has removed pc from the table: load the entry again.
	}
}

// parkNew parks a connection that has no record, and adds one. If the table has an old record for the number, its
// connection is closed, or it is another Go value for the same socket.
func (a *registrar) parkNew(entry *atomic.Pointer[parkedConn], number uintptr) (*parkedConn, error) {
	l := a.lot
	l.conns.mu.Lock()
	defer l.conns.mu.Unlock()
	if pc, err := a.parkExisting(entry, number); pc != nil {
		return pc, err
	}
	old := entry.Load()
	pc := &parkedConn{base: a.request.Base}
	_, err := a.begin(pc, number)
	if errors.Is(err, socknotify.ErrKeyMismatch) {
		if old != nil && old.isPending() {
			return nil, ErrParked
		}
		// The socket is still registered with the record of another value for the same socket.
		a.regs[0] = registration(number, socknotify.OpRemove)
		l.port.Process(a.regs[:], nil, 0)
		_, err = a.begin(pc, number)
	}
	if err != nil {
		return nil, err
	}
	for !l.conns.put(entry, old, pc) {
		old = entry.Load() // the sweeper has removed old
	}
	if old != nil {
		l.dispatch(old, Readable)
	}
	l.sweep.begin(l)
	return pc, nil
}

// begin parks the connection of pc: it enables the descriptor, or posts pc to a worker. It returns the former state of pc.
// If that is not unparked, pc is unchanged, and err is ErrParked.
//
// begin holds the lock until the descriptor is enabled. Otherwise the function could run and park the connection again
// first, and this registration would replace that of the later Park, which may wait for more.
func (a *registrar) begin(pc *parkedConn, number uintptr) (was state, err error) {
	l, p := a.lot, &a.request
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.state != unparked {
		return pc.state, ErrParked
	}
	pc.state, pc.conn, pc.fn, pc.parkedAt = parked, p.Conn, p.F, l.instant()
	pc.await, pc.unsettled = cmp.Or(p.Await, AwaitRead), p.unsettled
	l.stats.parked.Add(1)
	atOnce := p.Posted && !p.unsettled
	if p.Idle > 0 && !atOnce {
		pc.due = durations.Add(l.Now(), p.Idle)
	}
	if p.Posted {
		pc.state = queued
		l.port.Post(pc, 0) // cannot fail, as in dispatch
	} else if err = a.enable(pc, number); err != nil {
		l.endParking(pc)
		return unparked, err
	} else if pc.due != 0 {
		l.wheel.Set(pc, p.Idle)
	}
	l.stats.parks.Add(1)
	if atOnce {
		l.stats.atOnce.Add(1)
	}
	if c, ok := p.Conn.(*Conn); ok && c.parkedConn.Load() != pc {
		c.parkedConn.Store(pc)
	}
	return unparked, nil
}

func (pc *parkedConn) isPending() bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.pending()
}

// pending reports whether a call of the function is pending. The caller holds pc.mu.
func (pc *parkedConn) pending() bool { return pc.state != unparked && pc.state != removed }

// cancel ends a parking whose function has not begun, for an Unpark of conn, which is closed. It
// reports whether there was one.
func (l *Lot) cancel(pc *parkedConn, conn net.Conn) bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if !pc.pending() || pc.state == settling || pc.hidesBytes(conn) {
		return false
	}
	l.endParking(pc)
	return true
}
