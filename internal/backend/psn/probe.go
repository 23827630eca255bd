package psn

import (
	"errors"
	"fmt"
	"time"

	"github.com/socknotify/socknotify/internal/backend"
)

// Probe verifies the behaviour that the backend relies on, with a socket of its own. The reference does not document
// all of it. If the system behaves otherwise, the error wraps errors.ErrUnsupported. Behaviour that the backend can
// do without is recorded in sys.
func Probe(sys *System) error {
	port, err := sys.OpenPort()
	if err != nil {
		return err
	}
	defer sys.ClosePort(port)
	socket, send, release, err := sys.Datagram()
	if err != nil {
		return err
	}
	defer release()
	const key = 1
	disable := Registration{Socket: socket, Key: key, Op: opDisable}
	enable := Registration{Socket: socket, Key: key, Op: opEnable, Filter: eventOut, Trigger: trigger}
	remove := Registration{Socket: socket, Key: key, Op: opRemove}

	trial := trial{sys: sys, port: port}
	// Only a registration can be disabled. Enabling makes one, which reports a condition that holds, once.
	trial.do("enable", []Registration{disable, enable}, false, true)
	trial.packet("a first report", key, eventOut)
	trial.nothing("a second report")
	// After the report, and after it was disabled, it can be enabled again, and reports again.
	trial.do("enable again", []Registration{disable, enable}, true, true)
	trial.packet("a report after enabling again", key, eventOut)
	sys.Snapshots = true
	if enable.Filter |= eventIn; send != nil {
		trial.do("enable for both", []Registration{disable, enable}, true, true)
		sys.Snapshots = !trial.coalesces(socket, send)
	}
	// It can be removed after its report, and the packet of the removal is its last one.
	trial.do("remove", []Registration{remove}, true)
	trial.packet("a removal", key, eventRemove)
	trial.do("remove again", []Registration{remove}, false)
	trial.nothing("a report after removal")
	if trial.err == nil {
		sys.Receives = receives(sys) == nil
	}
	return trial.err
}

// receives verifies what receives by the kernel rely on, none of which is documented: a registered socket can also be
// associated with its port; packets of both kinds come, each with its own key; the socket can be taken off the port, and is
// then free for another one. It does all on two ports in turn.
func receives(sys *System) error {
	socket, send, release, err := sys.Datagram()
	if err != nil {
		return err
	}
	defer release()
	if send == nil {
		return errors.ErrUnsupported
	}
	for range 2 {
		port, err := sys.OpenPort()
		if err != nil {
			return err
		}
		trial := trial{sys: sys, port: port}
		trial.receives(socket, send)
		sys.ClosePort(port)
		if trial.err != nil {
			return trial.err
		}
	}
	return nil
}

func (t *trial) receives(socket uintptr, send func() error) {
	const key = receiveKey + 1
	disable := Registration{Socket: socket, Key: key, Op: opDisable}
	enable := Registration{Socket: socket, Key: key, Op: opEnable, Filter: eventIn, Trigger: trigger}
	remove := Registration{Socket: socket, Key: key, Op: opRemove}
	notified := func(event uint32) func(Entry) bool {
		return func(got Entry) bool { return got.Key == key && got.Transfer&event != 0 }
	}
	o := t.sys.NewOverlapped()
	defer func() {
		if t.err != nil {
			t.sys.pollers.keep(o) // its packet may not have come
		}
	}()
	ended := func(got Entry) bool { return got.Key == receiveKey && got.Overlapped == o.Address() }

	t.do("enable", []Registration{enable}, true)
	t.succeeds("associate", func() error { return t.sys.Associate(socket, t.port, receiveKey) })
	t.start(o, socket)
	t.succeeds("send", send)
	t.await("the end of a receive", ended)
	t.result(o, socket, 1, false)
	enable.Filter = eventOut
	t.do("enable after a receive", []Registration{disable, enable}, true, true)
	t.await("a report after a receive", notified(eventOut))
	t.start(o, socket)
	t.succeeds("cancel", func() error { o.Cancel(socket); return nil })
	t.await("the end of a canceled receive", ended)
	t.result(o, socket, 0, true)
	t.succeeds("dissociate", func() error { return t.sys.Dissociate(socket) })
	t.do("remove", []Registration{remove}, true)
	t.await("a removal", notified(eventRemove))
}

func (t *trial) succeeds(what string, call func() error) {
	if t.err != nil {
		return
	}
	if err := call(); err != nil {
		t.fail("%s: %v", what, err)
	}
}

// start starts a receive that has to wait.
func (t *trial) start(o Overlapped, socket uintptr) {
	t.succeeds("receive", func() error {
		started, err := o.Start(socket, make([]byte, 1))
		if !started && err == nil {
			err = errors.ErrUnsupported
		}
		return err
	})
}

func (t *trial) result(o Overlapped, socket uintptr, want int, canceled bool) {
	if t.err != nil {
		return
	}
	if n, void, err := o.Result(socket); n != want || void != canceled || err != nil {
		t.fail("a receive: %d bytes, canceled %t, %v", n, void, err)
	}
}

// await waits for a packet, and drops others.
func (t *trial) await(what string, wanted func(Entry) bool) {
	if t.err != nil {
		return
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		const milliseconds = 100
		var got [1]Entry
		switch n, code := t.sys.Process(t.port, nil, milliseconds, got[:]); {
		case failed(code):
			t.fail("%s: code %d", what, code)
			return
		case code == success && n == 1 && wanted(got[0]):
			return
		}
	}
	t.fail("%s: timed out", what)
}

// A trial stops at its first error.
type trial struct {
	sys  *System
	port uintptr
	err  error
}

func (t *trial) fail(format string, args ...any) {
	t.err = fmt.Errorf("ProcessSocketNotifications: %s: %w", fmt.Sprintf(format, args...), errors.ErrUnsupported)
}

// do processes registrations, some of which must fail.
func (t *trial) do(what string, regs []Registration, succeed ...bool) {
	if t.err != nil {
		return
	}
	if _, code := t.sys.Process(t.port, regs, 0, nil); code != success {
		t.fail("%s: the call: code %d", what, code)
		return
	}
	for i := range regs {
		if (regs[i].Result == success) != succeed[i] {
			t.fail("%s: registration %d: code %d", what, i, regs[i].Result)
			return
		}
	}
}

// packet waits for a packet and fails if it is not the expected one.
func (t *trial) packet(what string, key uintptr, events uint32) {
	if t.err != nil {
		return
	}
	const second = 1000
	var got [2]Entry
	n, code := t.sys.Process(t.port, nil, second, got[:])
	if code != success || n != 1 || got[0].Key != key || got[0].Transfer&events == 0 {
		t.fail("%s: %d packets, %+v, code %d", what, n, got[0], code)
	}
}

// coalesces makes a datagram arrive while a packet with OUT is queued. It reports whether that packet has IN and OUT
// when it is dequeued.
func (t *trial) coalesces(socket uintptr, send func() error) bool {
	if t.err != nil || send() != nil {
		return false
	}
	for end := time.Now().Add(time.Second); t.sys.PollOne(socket)&backend.In == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	var got [2]Entry
	n, _ := t.sys.Process(t.port, nil, 0, got[:])
	return n == 1 && got[0].Transfer&(eventIn|eventOut) == eventIn|eventOut
}

func (t *trial) nothing(what string) {
	if t.err != nil {
		return
	}
	var got [1]Entry
	if n, code := t.sys.Process(t.port, nil, 0, got[:]); !timedOut(code) {
		t.fail("%s: %d packets, %+v, code %d", what, n, got[0], code)
	}
}
