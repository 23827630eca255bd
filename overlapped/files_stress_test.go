package overlapped

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/test/handles"
)

var filesRounds = flag.Int("files.rounds", 100, "how many operations each goroutine of the stress test of files starts")

// stressSize is how long the files are. What is written to one is what was there before.
const stressSize = 512 << 10

// A stressOp is an operation, and is owned in turn by its user, the port, and the waiter that has
// dequeued it, who gives it back.
type stressOp struct {
	o Op[*stressOp]
	guardedBuffer
	b      []byte
	off    int64
	write  bool
	user   *stressUser
	moved  bool        // it has once done all there was to do
	reopen atomic.Bool // its file may have been closed since the start
	flight atomic.Bool
}

// A stressUser has a file, which others have too, and closes it now and then.
type stressUser struct {
	p      *socknotify.Port[*stressOp]
	name   string
	direct bool
	file   *os.File
	ops    [8]stressOp
	free   chan *stressOp
}

// contents makes what is at an offset, a multiple of 8, in every file.
func contents(b []byte, off int64) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], uint64(off+int64(i))*0x9e3779b97f4a7c15)
	}
}

func newStressUser(t *testing.T, p *socknotify.Port[*stressOp], at filePlace) *stressUser {
	t.Helper()
	file, err := os.CreateTemp(at.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	b := make([]byte, stressSize)
	contents(b, 0)
	if _, err := file.Write(b); err != nil {
		t.Fatal(err)
	}
	u := &stressUser{p: p, name: file.Name(), direct: at.direct}
	u.free = make(chan *stressOp, len(u.ops))
	if err := u.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.file.Close() })
	for i := range u.ops {
		u.ops[i].user = u
		u.free <- &u.ops[i]
	}
	return u
}

// open opens the file once more, and closes it where it was open before.
func (u *stressUser) open() error {
	flags := os.O_RDWR
	if u.direct {
		flags |= directFlag
	}
	f, err := os.OpenFile(u.name, flags, 0)
	if err != nil {
		return err
	}
	if u.file != nil {
		for i := range u.ops {
			u.ops[i].reopen.Store(true)
		}
		u.file.Close()
	}
	u.file = f
	return nil
}

// run starts so many operations, or as many as it can before the port is closed.
func (u *stressUser) run(t *testing.T, rounds int, closed <-chan struct{}) {
	for range rounds {
		var o *stressOp
		select {
		case o = <-u.free:
		case <-closed:
			return
		}
		if !o.intact() {
			t.Error("a buffer was written to that is the caller's again")
			return
		}
		if err := u.start(o); err != nil {
			o.flight.Store(false)
			if o.clear(); err != socknotify.ErrClosed {
				t.Error(err)
			}
			return
		}
		if rand.IntN(20) == 0 {
			if err := u.open(); err != nil {
				t.Error(err)
				return
			}
		}
	}
}

func (u *stressUser) start(o *stressOp) error {
	n, off := 512<<rand.IntN(9), rand.IntN(stressSize/512)*512
	if rand.IntN(16) == 0 {
		n = 300 << 10
	}
	if u.direct {
		n, off = max(alignment, n), off/alignment*alignment
	}
	if o.write = rand.IntN(3) == 0; o.write {
		n = min(n, stressSize-off)
	}
	o.off, o.b = int64(off), o.buffer(n, u.direct)
	o.reopen.Store(false)
	o.flight.Store(true)
	if !o.write {
		return ReadAt(u.p, u.file, o, o.b, o.off, &o.o)
	}
	contents(o.b, o.off)
	return WriteAt(u.p, u.file, o, o.b, o.off, &o.o)
}

// dequeued checks a completion, and gives the operation back.
func (o *stressOp) dequeued(t *testing.T, nt *socknotify.Notification[*stressOp]) {
	if Of(nt) != &o.o || !o.flight.CompareAndSwap(true, false) {
		t.Errorf("%+v is a completion of what is not in flight", *nt)
		return
	}
	n, err := o.o.Result()
	want := make([]byte, min(len(o.b), stressSize-int(o.off)))
	contents(want, o.off)
	switch {
	case n == len(o.b) && err == nil || n == len(want) && n < len(o.b) && err == io.EOF:
		o.moved = true
	case n < len(o.b) && n <= len(want) && (errors.Is(err, ErrCanceled) || o.reopen.Load() && errors.Is(err, os.ErrClosed)):
	default:
		t.Errorf("completed with %d of %d at %d, %v; a write: %t", n, len(o.b), o.off, err, o.write)
	}
	if !bytes.Equal(o.b[:n], want[:n]) {
		t.Errorf("%d at %d are other bytes than the file's; a write: %t", n, o.off, o.write)
	}
	if !o.inside() {
		t.Error("written beside a buffer")
	}
	o.clear()
	o.user.free <- o
}

// Users start operations on files, other goroutines close the files and cancel the operations, and several waiters share the
// completions, until the port is closed under all of them. What an operation reads or writes is known, and so is who
// may write to its buffer at any time.
func TestFilesStress(t *testing.T) {
	places := filePlaces(t)
	onFileBackends(t, func(t *testing.T, open func() (backend.Poller, error)) {
		handles.NoneLeft(t, "")
		k, err := open()
		if err != nil {
			t.Fatal(err)
		}
		p := newPort[*stressOp](t, k, "")
		defer p.Close()
		var all []*stressUser
		for range 4 {
			for _, at := range places {
				all = append(all, newStressUser(t, p, at))
			}
		}
		stressFiles(t, p, all)
		eventually(t, "the kernel's threads for the port have ended", func() bool { return kernelThreads(t) == 0 })
	})
}

func stressFiles(t *testing.T, p *socknotify.Port[*stressOp], all []*stressUser) {
	var users, others sync.WaitGroup
	closed := make(chan struct{})
	for range 3 {
		others.Go(func() {
			var out [4]socknotify.Notification[*stressOp]
			for {
				n, err := p.Process(nil, out[:1+rand.IntN(len(out))], soon)
				if err != nil {
					if err != socknotify.ErrClosed && err != socknotify.ErrTimeout {
						t.Error(err)
					}
					if err == socknotify.ErrClosed {
						return
					}
				}
				for i := range out[:n] {
					out[i].Key.dequeued(t, &out[i])
				}
			}
		})
	}
	others.Go(func() {
		for {
			select {
			case <-closed:
				return
			case <-time.After(time.Duration(rand.IntN(200)) * time.Microsecond): // at random moments
			}
			u := all[rand.IntN(len(all))]
			if err := Cancel(p, &u.ops[rand.IntN(len(u.ops))].o); err != nil && err != ErrNotInFlight && err != socknotify.ErrClosed {
				t.Error(err)
			}
		}
	})
	// Each of them comes back, once.
	for _, u := range all {
		users.Go(func() { u.run(t, *filesRounds, nil) })
	}
	users.Wait()
	moved := 0
	for _, u := range all {
		back := map[*stressOp]bool{}
		for range u.ops {
			select {
			case o := <-u.free:
				back[o] = true
				if o.moved {
					moved++
				}
			case <-time.After(soon): // what must come has not
				t.Fatal("an operation never completes")
			}
		}
		if len(back) != len(u.ops) || len(u.free) > 0 {
			t.Fatal("an operation has completed more than once")
		}
		for o := range back {
			u.free <- o
		}
	}
	if moved == 0 {
		t.Error("no operation has done what it was to do")
	}
	// And once more, with operations in flight when the port is closed.
	for _, u := range all {
		users.Go(func() { u.run(t, math.MaxInt, closed) })
	}
	eventually(t, "some are in flight", func() bool {
		for _, u := range all {
			for i := range u.ops {
				if u.ops[i].flight.Load() {
					return true
				}
			}
		}
		return false
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	close(closed)
	users.Wait()
	others.Wait()
	for range 2 {
		for _, u := range all {
			for i := range u.ops {
				o := &u.ops[i]
				if o.flight.CompareAndSwap(true, false) {
					o.clear() // it is ours again, without a completion (O10)
				} else if !o.intact() {
					t.Error("a buffer was written to after Close")
				}
			}
		}
		time.Sleep(time.Millisecond) // a write that comes after Close has time to show
	}
}
