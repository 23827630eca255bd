package tlsrecord

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// A Pump is the TLS of a connection after its handshake. It makes plaintext of the bytes that are
// received, keeps those that are not read yet, and says what must be sent for them. The embedded
// Records make what is sent. A Pump does no I/O of its own: its owner receives and sends. The owner
// is a Conn, or a connection of package server.
//
// The receiving side has a lock of its own, see Lock. The sending side has a lock of the owner,
// which is acquired after it. At the end of a use, Unlock and UnlockOut or EndOut decide whether the
// ciphers are kept.
type Pump struct {
	Records

	reading sync.Mutex
	buf     *Buffer       // nil while nothing has been received and not read
	used    atomic.Uint32 // see keeper
	ended   atomic.Bool   // the connection is closed, and the secrets are to be overwritten
}

// Buffers are a pool of buffers. Those for a Pump have room for MaxRecord bytes at least.
type Buffers struct{ pool sync.Pool }

// NewBuffers returns a pool. newBuffer returns a Buffer whose B is set.
func NewBuffers(newBuffer func() *Buffer) *Buffers {
	p := new(Buffers)
	p.pool.New = func() any {
		b := newBuffer()
		b.home = p
		return b
	}
	return p
}

// Get returns a buffer, until Free.
func (p *Buffers) Get() *Buffer { return p.pool.Get().(*Buffer) }

// A Buffer is for what was received, or for what is to be sent.
type Buffer struct {
	B    []byte
	wire []byte // received, and not opened; in B, except after Feed
	data []byte // opened, and not read; where wire is
	home *Buffers
}

// Free gives a buffer back.
func (b *Buffer) Free() {
	b.wire, b.data = nil, nil
	b.home.pool.Put(b)
}

// An errNothing is the error of a function that receives and would have to wait. Since it is
// temporary, both crypto/tls and a Pump go on after it.
type errNothing struct{}

// ErrNothing means that nothing has arrived, or no whole record.
var ErrNothing error = errNothing{}

func (errNothing) Error() string   { return "tls: nothing has arrived" }
func (errNothing) Timeout() bool   { return true }
func (errNothing) Temporary() bool { return true }

// Lock acquires the receiving side, for Read, Arrived, Feed and Wipe.
func (p *Pump) Lock() { p.reading.Lock() }

// Unlock releases the receiving side, with the memory that it does not need. When the connection is
// closed, the secrets are overwritten by the last call that has the lock: end first marks the
// connection, and then wipe tries to lock.
func (p *Pump) Unlock() {
	if in := p.buf; in != nil && len(in.wire) == 0 && len(in.data) == 0 {
		p.dropInput()
	}
	if p.used.Load() == 0 {
		p.Drop()
	}
	p.reading.Unlock()
	if p.ended.Load() && p.reading.TryLock() {
		p.wipeIn(net.ErrClosed)
		p.reading.Unlock()
	}
}

// UnlockOut is Unlock for the sending side, whose lock is sending.
func (p *Pump) UnlockOut(sending *sync.Mutex) {
	p.EndOut()
	sending.Unlock()
	if p.ended.Load() && sending.TryLock() {
		p.WipeOut(net.ErrClosed)
		sending.Unlock()
	}
}

// EndOut ends a use of the sending side, whose lock the caller holds and keeps.
func (p *Pump) EndOut() {
	if p.used.Load() == 0 {
		p.DropOut()
	}
}

// Use notes that u, which owns p, is about to use a cipher of either side.
func (p *Pump) Use(u User) { ciphers.use(u, &p.used) }

// DropCiphers is that of a User, whose sending lock is sending.
func (p *Pump) DropCiphers(sending *sync.Mutex) bool {
	if !p.reading.TryLock() {
		return false
	}
	defer p.Unlock()
	if !sending.TryLock() {
		return false
	}
	defer p.UnlockOut(sending)
	p.used.Store(0)
	return true
}

// Read reads data of at most one record, for u, which owns p. Where the record has not arrived,
// receive is called to receive it into a buffer of from. After ErrNothing, or another temporary
// error of receive, the next Read goes on with the record. Other errors are final. Whatever Read
// returns, Owes may have become true. The receiving lock is held.
func (p *Pump) Read(u User, b []byte, from *Buffers, receive func([]byte) (int, error)) (int, error) {
	if p.HasData() {
		n := copy(b, p.buf.data)
		p.buf.data = p.buf.data[n:]
		return n, nil
	}
	for {
		size, whole, err := p.arriving()
		if whole {
			break
		}
		if err == nil {
			err = p.fill(size, from, receive)
		}
		if err != nil {
			return 0, err
		}
	}
	p.Use(u)
	n, rest, err := p.read(b, p.takeRecord())
	p.buf.data = rest
	return n, err
}

// ReadAlert opens an alert that has arrived behind the data that was read. It reports whether there
// is one, or its beginning. Then Owes may have become true, and Err return its meaning.
func (p *Pump) ReadAlert(u User) bool {
	if in := p.buf; in == nil || len(in.data) > 0 || len(in.wire) == 0 || in.wire[0] != typeAlert {
		return false
	}
	if _, whole, _ := p.arriving(); whole {
		p.Use(u)
		p.Open(nil, p.takeRecord())
	}
	return true
}

// HasData reports whether data has been opened and not read.
func (p *Pump) HasData() bool { return p.buf != nil && len(p.buf.data) > 0 }

// HasBytes reports whether bytes have been received and not opened.
func (p *Pump) HasBytes() bool { return p.buf != nil && len(p.buf.wire) > 0 }

// Arrived reports whether Read returns something without receiving.
func (p *Pump) Arrived() bool {
	_, whole, err := p.arriving()
	return whole || err != nil || p.HasData()
}

// arriving returns the size of the next record, or of a header as long as that has not arrived, and
// reports whether the whole record has. err is what has ended the receiving side.
func (p *Pump) arriving() (size int, whole bool, err error) {
	if p.buf == nil || len(p.buf.wire) < headerSize {
		return headerSize, false, p.Err()
	}
	size, err = p.Length(p.buf.wire)
	return size, err == nil && len(p.buf.wire) >= size, err
}

// takeRecord returns the next record, which has arrived, and removes it.
func (p *Pump) takeRecord() []byte {
	n := recordSize(p.buf.wire)
	record := p.buf.wire[:n]
	p.buf.wire = p.buf.wire[n:]
	return record
}

// fill receives once, for a record of which need bytes are wanted.
func (p *Pump) fill(need int, from *Buffers, receive func([]byte) (int, error)) error {
	if p.buf == nil {
		p.buf = from.Get()
		p.buf.wire = p.buf.B[:0]
	}
	in := p.buf
	if len(in.wire) == 0 || cap(in.wire) < need {
		in.wire = in.B[:copy(in.B, in.wire)]
	}
	have := len(in.wire)
	n, err := receive(in.wire[have:cap(in.wire)])
	in.wire = in.wire[:have+n]
	switch {
	case n > 0 || err == nil:
		return nil // an error comes again
	case err == io.EOF && have > 0:
		err = io.ErrUnexpectedEOF
	}
	if e, ok := err.(interface{ Temporary() bool }); !ok || !e.Temporary() {
		p.Fail(err)
	}
	return err
}

// Feed gives the pump bytes that were received before it had the connection, behind those that it
// has. It copies them, to a buffer of from if there is room.
func (p *Pump) Feed(b []byte, from *Buffers) {
	if len(b) == 0 {
		return
	}
	if p.buf == nil {
		p.buf = from.Get()
		p.buf.wire = p.buf.B[:0]
	}
	p.buf.wire = append(p.buf.wire, b...)
}

// move moves the records, and the bytes that have arrived, to another pump, which has none. This one
// has ended then. The locks of both sides of both pumps are held.
func (p *Pump) move(to *Pump) {
	to.Records, to.buf = p.Records, p.buf
	p.Records, p.buf = Records{notified: true}, nil
	p.Fail(net.ErrClosed)
	p.FailOut(net.ErrClosed)
}

func (p *Pump) dropInput() {
	p.buf.Free()
	p.buf = nil
}

// wipeIn ends the receiving side, whose lock is held, and overwrites its secrets.
func (p *Pump) wipeIn(err error) {
	p.WipeIn(err)
	if p.buf != nil {
		p.dropInput()
	}
}

// Wipe ends both sides, whose locks are held, and overwrites the secrets.
func (p *Pump) Wipe(err error) {
	p.wipeIn(err)
	p.WipeOut(err)
}

// end marks the connection as closed, and reports whether it was not. Secrets that a call uses are
// overwritten when it returns, and the others by wipe.
func (p *Pump) end() bool { return !p.ended.Swap(true) }

// wipe has the secrets of an ended connection overwritten that no call uses.
func (p *Pump) wipe(sending *sync.Mutex) {
	if p.reading.TryLock() {
		p.Unlock()
	}
	if sending.TryLock() {
		p.UnlockOut(sending)
	}
}
