package load

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// onTime is in place of a connection's index: the time has come for a request.
const onTime = -1

// A pace is when requests are due: so many at once, and those evenly spread.
type pace struct {
	timer int // a timerfd
	burst int
	turn  int // the connection that is next
}

// newPace has a timer expire as often as makes so many requests a second, and the epoll descriptor watch it.
func newPace(ep *epoll, rate float64, burst int) (*pace, error) {
	every := unix.NsecToTimespec(int64(float64(time.Second) / rate * float64(burst)))
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("timerfd: %w", err)
	}
	p := &pace{timer: fd, burst: burst}
	err = unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil)
	if err == nil {
		err = ep.add(fd, onTime)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("timerfd: %w", err)
	}
	return p, nil
}

func (p *pace) close() { unix.Close(p.timer) }

// due is how many requests have become due since it was last asked.
func (p *pace) due() int {
	var b [8]byte
	if n, err := unix.Read(p.timer, b[:]); n != len(b) || err != nil {
		return 0
	}
	return p.burst * int(binary.NativeEndian.Uint64(b[:]))
}

// sendDue sends what is due, each request on the connection whose turn it is. One that still waits for its
// answer is passed over; where all do, the server cannot keep up, and the request is left out.
func (t *tcp) sendDue() error {
	for range min(t.pace.due(), len(t.conns)) {
		for range t.conns {
			c := &t.conns[t.pace.turn]
			t.pace.turn = (t.pace.turn + 1) % len(t.conns)
			if c.got < c.sent {
				continue
			}
			if err := t.request(c, 1); err != nil {
				return fmt.Errorf("connection %d: %w", c.id, err)
			}
			break
		}
	}
	return nil
}
