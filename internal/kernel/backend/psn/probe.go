package psn

import (
	"errors"
	"fmt"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/backend"
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
	return trial.err
}

// patience is how long what must come may take on a busy system. Nothing waits for so long on a system
// that behaves as expected.
const patience = 10 * time.Second

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
	var got [2]Entry
	n, code := t.sys.Process(t.port, nil, uint32(patience/time.Millisecond), got[:])
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
	for end := time.Now().Add(patience); t.sys.PollOne(socket)&backend.In == 0; time.Sleep(time.Millisecond) {
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
