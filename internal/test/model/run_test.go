//go:build unix || windows

package model

import (
	"errors"
	"os"
	"time"

	"github.com/socknotify/socknotify"
	testawait "github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/sock"
)

// run performs a sequence in a new world and returns why it failed, or "".
func run(backend string, waiting int, ops []Op) string {
	w := newWorld(backend)
	if waiting > 0 {
		w.startWaiters(waiting)
	}
	for _, op := range ops {
		w.step(op)
		if w.failed() {
			break
		}
	}
	if !w.failed() {
		w.finish()
	}
	if w.waiters != nil {
		w.waiters.stop()
	}
	w.close()
	return w.failure
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure != ""
}

func (w *world) step(op Op) {
	if op.Do == Settle {
		w.settle()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tick()
	ps := w.ports[op.Port]
	switch op.Do {
	case Enable, Disable, Remove:
		w.flushOthers(ps)
		ps.batch = append(ps.batch, op)
		if !op.Batch {
			w.process(ps, nil, now)
		}
	case Wait:
		w.flushOthers(ps)
		wait := due
		if op.N == 0 {
			wait = brief
		}
		w.process(ps, make([]notification, 1+op.N), wait)
	default:
		w.flush()
		w.act(ps, op)
	}
	w.refresh()
}

func (w *world) flushOthers(ps *portState) {
	for _, other := range w.ports {
		if other != ps && len(other.batch) > 0 {
			w.process(other, nil, now)
		}
	}
}

func (w *world) act(ps *portState, op Op) {
	s := &w.slots[op.Sock]
	f, now := s.file, w.now()
	switch op.Do {
	case Deregister:
		w.deregister(ps, op, s.num)
	case WaitAll:
		w.dequeueAll(ps, 2+op.N/2, 1+op.N%3)
	case Post:
		w.post(ps, 1+op.N)
	case PeerSend:
		f.peerSend(1 + op.N)
	case Recv, RecvAll:
		f.recv(now, op.Do == RecvAll)
	case Send, SendFull:
		f.send(now, op.Do == SendFull)
	case PeerRecvAll:
		f.peerRecvAll()
	case PeerUrgent:
		f.peerUrgent()
	case ReadErr:
		f.readErr()
	case ShutRead:
		f.shut(sock.ShutRead)
	case ShutWrite:
		f.shut(sock.ShutWrite)
	case PeerShutWrite:
		f.peerShut1()
	case PeerClose, PeerReset:
		f.peerClose(op.Do == PeerReset)
	case Close, DupClose:
		w.closeNumber(f, op.Do == DupClose)
	case DropDup:
		if f.dup != nil {
			check(f.dup.Close())
			f.dup = nil
		}
	case Open, Replace:
		w.open(s, op)
	case NewPort:
		w.renew(op.Port, op.N%2 == 1)
	case NotFound:
		w.notFound(ps, op)
	case OldPeers:
		for _, f := range w.files {
			if f.fd < 0 && f.dup != nil && f.kind != listener {
				f.peerSend(1 + op.N)
			}
		}
	}
}

func (w *world) deregister(ps *portState, op Op, num int) {
	r := ps.regs[num]
	entry, want := w.apply(ps, op, num)
	entry.Op = socknotify.OpNone // which is not read
	key, err := ps.p.Deregister(entry)
	w.fenced()
	w.judge(want, err)
	if err == nil && r != nil && key != r.key {
		w.fail("Deregister of %d returned the key %d; want %d (Q5)", num, key, r.key)
	}
}

func (w *world) post(ps *portState, n int) {
	for range n {
		ps.got = append(ps.got, false)
		ps.posted++
		if err := ps.p.Post(postKey, uintptr(ps.posted-1)); err != nil {
			w.fail("Post: %v", err)
		}
	}
}

// closeNumber closes a file's number, with or without a duplicate that keeps the socket alive.
func (w *world) closeNumber(f *file, keep bool) {
	if f.fd < 0 {
		return
	}
	if keep {
		f.dup = must(sock.Adopt(duplicate(f.sock.Handle()), sock.MakeNonblocking))
	}
	num := f.fd
	w.closing(f, true)
	check(f.sock.Close())
	w.keep(num)
	if keep && f.kind == tcp && wine.ForgetsPeer.Here() {
		w.retired[num] = true
	}
	w.fenced()
}

// open gives a slot a new socket, under the lowest free number or the slot's own.
func (w *world) open(s *slot, op Op) {
	if op.Do == Open && s.file.fd >= 0 {
		return // it has one
	}
	if op.Do == Replace && s.file.fd < 0 {
		return
	}
	f := w.newFile(kind(op.N) % kinds)
	if op.Do == Open {
		w.place(s, f)
		return
	}
	w.closing(s.file, false)
	num := replaced(s.num, f.sock.Handle())
	check(f.sock.Close())
	w.put(s, f, num)
}

// renew closes a port, which forgets everything, and makes another.
func (w *world) renew(i int, strict bool) {
	old := w.ports[i]
	if err := old.p.Close(); err != nil {
		w.fail("Close: %v", err)
	}
	var out [1]notification
	if _, err := old.p.Process(nil, out[:], 0); !errors.Is(err, socknotify.ErrClosed) {
		w.fail("Wait on a closed port: %v", err)
	}
	w.ports[i] = w.newPort(strict)
}

// notFound names what is no socket (G8).
func (w *world) notFound(ps *portState, op Op) {
	num := noSocket
	if op.N%2 == 1 {
		r, w, err := os.Pipe()
		check(err)
		defer r.Close()
		defer w.Close()
		num = int(r.Fd())
	}
	entries := []socknotify.Registration[int]{
		{Handle: uintptr(num), Key: -2, Filter: op.Filter, Op: socknotify.OpEnable, Trigger: socknotify.TriggerLevel},
		{Handle: uintptr(num), Op: socknotify.OpDisable},
		{Handle: uintptr(num), Op: socknotify.OpRemove},
	}
	w.dequeue(ps, entries, nil, 0)
	for i, do := range []Do{Enable, Disable, Remove} {
		w.judge(expectation{Op{Do: do}, num, socknotify.ErrBadSocket}, entries[i].Result)
	}
}

// settle dequeues until nothing is due.
func (w *world) settle() {
	w.mu.Lock()
	w.flush()
	w.settling = true
	for _, ps := range w.ports {
		for _, r := range ps.regs {
			r.settled = false
		}
	}
	w.mu.Unlock()
	end := time.Now().Add(patience())
	for i := range w.ports {
		for turn := 0; !w.failed(); turn++ {
			w.mu.Lock()
			w.refresh()
			owed := w.owed(w.ports[i])
			late := time.Now().After(end)
			switch {
			case owed == "":
			case w.waiters == nil:
				w.dequeue(w.ports[i], nil, make([]notification, 4), due)
			case late:
				w.fail("the waiters were not given within %v: %s; %+v", patience(), owed, w.ports[i].p.Stats())
			}
			w.mu.Unlock()
			if owed == "" {
				break
			}
			if w.waiters != nil {
				testawait.Pause(min(time.Duration(turn), 20) * 50 * time.Microsecond)
			} else if late || turn > 1000 {
				w.fail("the port does not settle: %s", owed)
			}
		}
		w.quiet(w.ports[i])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settling = false
	w.tick()
	w.refresh()
}

// quiet makes sure that a standing condition does not go on notifying an edge or one-shot
// registration (E8).
func (w *world) quiet(ps *portState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters != nil || w.failure != "" {
		return
	}
	out := make([]notification, 2*socks)
	for range 20 {
		n, _ := ps.p.Process(nil, out, 0)
		w.checkCall(ps, out[:n], w.now())
		loud := false
		for _, nt := range out[:n] {
			for _, r := range ps.byKey[nt.Key] {
				loud = loud || ps.regs[r.num] == r && (r.edge() || r.oneShot())
			}
		}
		if !loud {
			return
		}
	}
	w.fail("an edge or one-shot registration goes on notifying though nothing happens (E8)")
}

// finish settles, removes what is left and settles again.
func (w *world) finish() {
	w.settle()
	w.mu.Lock()
	for i, ps := range w.ports {
		for num, r := range ps.regs {
			if r.gone || w.byNum[num] != r.file {
				continue
			}
			if num%2 == 0 {
				w.deregister(ps, Op{Do: Deregister, Port: i}, num)
				continue
			}
			entry, want := w.apply(ps, Op{Do: Remove, Port: i}, num)
			entries := []socknotify.Registration[int]{entry}
			w.dequeue(ps, entries, nil, 0)
			w.judge(want, entries[0].Result)
		}
	}
	w.mu.Unlock()
	w.settle()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ps := range w.ports {
		// All that are left are of closed sockets; the port may have found that out by itself.
		if got := ps.p.Stats().Registrations; got < 0 || got > int64(len(ps.regs)) {
			w.fail("Stats says %d registrations, want up to %d (X6)", got, len(ps.regs))
		}
	}
}
