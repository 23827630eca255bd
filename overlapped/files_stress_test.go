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
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

var filesRounds = flag.Int("files.rounds", 100,
	"how many operations each goroutine of the stress test of files starts")

const (
	// stressSize is how long the files are. What is written to one is what was there before.
	stressSize = 512 << 10
	// longestStress is the longest buffer.
	longestStress = 300 << 10
)

var sentinels = bytes.Repeat([]byte{0xc5}, longestStress)

// contents makes what is at an offset, a multiple of 8, in every file.
func contents(b []byte, off int64) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], uint64(off+int64(i))*0x9e3779b97f4a7c15)
	}
}

// A stressOp is an operation, and is owned in turn by its user, the port, and the waiter that has
// dequeued it, which gives it back.
type stressOp struct {
	o      Op[*stressOp]
	memory [longestStress]byte // sentinels while the user owns it
	b      []byte
	off    int64
	write  bool
	user   *stressUser
	moved  bool        // it has once done all there was to do
	reopen atomic.Bool // its file may have been closed since the start
	flight atomic.Bool
}

func (o *stressOp) clear() { copy(o.memory[:], sentinels) }

// intact reports whether the memory has not been written since it was cleared.
func (o *stressOp) intact() bool { return bytes.Equal(o.memory[:], sentinels) }

// A stressUser has a file, and closes it now and then.
type stressUser struct {
	p    *socknotify.Port[*stressOp]
	name string
	file *os.File
	ops  [8]stressOp
	free chan *stressOp
}

func newStressUser(t *testing.T, p *socknotify.Port[*stressOp]) *stressUser {
	t.Helper()
	b := make([]byte, stressSize)
	contents(b, 0)
	u := &stressUser{p: p, name: t.TempDir() + "/file"}
	u.free = make(chan *stressOp, len(u.ops))
	err := os.WriteFile(u.name, b, 0o600)
	if err == nil {
		err = u.open()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.file.Close() })
	for i := range u.ops {
		u.ops[i].user = u
		u.ops[i].clear()
		u.free <- &u.ops[i]
	}
	return u
}

// open opens the file once more, and closes it where it was open before.
func (u *stressUser) open() error {
	f, err := os.OpenFile(u.name, os.O_RDWR, 0)
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
	o.off = int64(rand.IntN(stressSize/512) * 512)
	o.b = o.memory[:min(512<<rand.IntN(10), len(o.memory))]
	if o.write = rand.IntN(3) == 0; o.write {
		o.b = o.b[:min(len(o.b), stressSize-int(o.off))]
	}
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
	ended := errors.Is(err, ErrCanceled) || o.reopen.Load() && errors.Is(err, os.ErrClosed)
	switch {
	case n == len(o.b) && err == nil || n == len(want) && n < len(o.b) && err == io.EOF:
		o.moved = true
	case n < len(o.b) && n <= len(want) && ended:
	default:
		t.Errorf("completed with %d of %d at %d, %v; a write: %t", n, len(o.b), o.off, err, o.write)
	}
	if !bytes.Equal(o.b[:n], want[:n]) {
		t.Errorf("%d at %d are other bytes than the file's; a write: %t", n, o.off, o.write)
	}
	o.clear()
	o.user.free <- o
}

// Users start operations on files and close the files, others cancel the operations, and several
// waiters share the completions, until the port is closed under all of them. What an operation
// reads or writes is known, and so is the owner of its buffer at any time.
func TestFilesStress(t *testing.T) {
	onEachOf(t, func(t *testing.T, p *socknotify.Port[*stressOp], _ *backendtest.Hooked) {
		var all []*stressUser
		for range 8 {
			all = append(all, newStressUser(t, p))
		}
		var users, others sync.WaitGroup
		closed := make(chan struct{})
		for range 3 {
			others.Go(func() { dequeueFiles(t, p) })
		}
		others.Go(func() { cancelFiles(t, p, all, closed) })
		for _, u := range all {
			users.Go(func() { u.run(t, *filesRounds, nil) })
		}
		users.Wait()
		comeBack(t, all)
		// And once more, with operations in flight when the port is closed.
		for _, u := range all {
			users.Go(func() { u.run(t, math.MaxInt, closed) })
		}
		eventually(t, "an operation is in flight", all[0].ops[0].flight.Load)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		close(closed)
		users.Wait()
		others.Wait()
		for _, u := range all {
			for i := range u.ops {
				o := &u.ops[i]
				if o.flight.Load() {
					o.clear() // it is ours again, without a completion (O10)
				}
			}
		}
		time.Sleep(time.Millisecond) // a read that comes after Close has time to show
		for _, u := range all {
			for i := range u.ops {
				if !u.ops[i].intact() {
					t.Error("a buffer was written to after Close")
				}
			}
		}
	})
}

func dequeueFiles(t *testing.T, p *socknotify.Port[*stressOp]) {
	var out [4]socknotify.Notification[*stressOp]
	for {
		n, err := p.Process(nil, out[:1+rand.IntN(len(out))], soon)
		if err == socknotify.ErrClosed {
			return
		}
		if err != nil && err != socknotify.ErrTimeout {
			t.Error(err)
		}
		for i := range out[:n] {
			out[i].Key.dequeued(t, &out[i])
		}
	}
}

// cancelFiles cancels operations at random moments.
func cancelFiles(
	t *testing.T, p *socknotify.Port[*stressOp], all []*stressUser, closed <-chan struct{},
) {
	for {
		select {
		case <-closed:
			return
		case <-time.After(time.Duration(rand.IntN(200)) * time.Microsecond): // a random moment
		}
		u := all[rand.IntN(len(all))]
		err := Cancel(p, &u.ops[rand.IntN(len(u.ops))].o)
		if err != nil && err != ErrNotInFlight && err != socknotify.ErrClosed {
			t.Error(err)
		}
	}
}

// comeBack waits until each operation has come back, once.
func comeBack(t *testing.T, all []*stressUser) {
	t.Helper()
	moved := 0
	for _, u := range all {
		eventually(t, "its operations complete", func() bool { return len(u.free) == len(u.ops) })
		back := map[*stressOp]bool{}
		for range u.ops {
			o := <-u.free
			back[o] = true
			if o.moved {
				moved++
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
}
