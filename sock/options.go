package sock

import (
	"errors"
	"math"
	"net"
	"time"
)

// SetNoDelay sets TCP_NODELAY: whether the system transmits small sends immediately. The system's default is false;
// package net's default is true.
func (s *Socket) SetNoDelay(on bool) error {
	return s.do("setsockopt", func(h uintptr) error { return sysNoDelay(h, on) })
}

// NoDelay reports whether the system transmits small sends immediately (TCP_NODELAY).
func (s *Socket) NoDelay() (on bool, err error) {
	err = s.do("getsockopt", func(h uintptr) (err error) {
		on, err = sysHasNoDelay(h)
		return err
	})
	return on, err
}

// SetKeepAlive configures the keep-alive probes of a TCP connection. As for net.TCPConn.SetKeepAliveConfig, a field
// of 0 means package net's default, and a negative field leaves the system's value unchanged. SetKeepAlive fails
// with errors.ErrUnsupported if the system does not support all of the options.
func (s *Socket) SetKeepAlive(c net.KeepAliveConfig) error {
	return s.do("setsockopt", func(h uintptr) error { return sysKeepAlive(h, c) })
}

// KeepAlive returns the keep-alive configuration of a TCP connection. For a listener it returns the initial
// configuration of its connections. Values that the system does not report are 0.
func (s *Socket) KeepAlive() (c net.KeepAliveConfig, err error) {
	err = s.do("getsockopt", func(h uintptr) (err error) {
		c, err = sysGetKeepAlive(h)
		return err
	})
	return c, err
}

// SetReadBuffer requests a size in bytes for the system's receive buffer.
func (s *Socket) SetReadBuffer(n int) error {
	return s.do("setsockopt", func(h uintptr) error { return sysBuffer(h, dirRecv, n) })
}

// SetWriteBuffer requests a size in bytes for the system's send buffer.
func (s *Socket) SetWriteBuffer(n int) error {
	return s.do("setsockopt", func(h uintptr) error { return sysBuffer(h, dirSend, n) })
}

// SetLinger selects what happens on Close to data that was sent but not acknowledged. If seconds < 0, the system
// continues to send it. If seconds == 0, the system discards it and resets the connection. SetLinger fails with
// os.ErrInvalid if seconds > 0, because Close would block.
func (s *Socket) SetLinger(seconds int) error {
	return s.do("setsockopt", func(h uintptr) error {
		if seconds > 0 {
			return errLinger
		}
		return sysLinger(h, seconds == 0)
	})
}

// SetDualStack selects whether an IPv6 socket accepts IPv4 too, with IPv4-mapped addresses. It must be called
// before Bind.
func (s *Socket) SetDualStack(on bool) error {
	return s.do("setsockopt", func(h uintptr) error { return sysDualStack(h, on) })
}

// SetReusePort selects whether other sockets may be bound to the same address, to share its connections or
// datagrams. It must be called before Bind. It fails with errors.ErrUnsupported if the system does not distribute
// them.
func (s *Socket) SetReusePort(on bool) error {
	return s.do("setsockopt", func(h uintptr) error { return sysReusePort(h, on) })
}

func sysKeepAlive(h uintptr, c net.KeepAliveConfig) error {
	if err := setKeepAlive(h, c.Enable); err != nil || !c.Enable {
		return err
	}
	// 0 means package net's default.
	for _, o := range [...]struct {
		option, value, unset int
	}{
		{keepIdle, seconds(c.Idle), 15},
		{keepInterval, seconds(c.Interval), 15},
		{keepCount, c.Count, 9},
	} {
		if o.value == 0 {
			o.value = o.unset
		}
		if o.value < 0 {
			continue
		}
		if o.option == 0 {
			return errors.ErrUnsupported
		}
		if err := setTCP(h, o.option, o.value); err != nil {
			return err
		}
	}
	return nil
}

func sysGetKeepAlive(h uintptr) (c net.KeepAliveConfig, err error) {
	if c.Enable, err = hasKeepAlive(h); err != nil {
		return c, err
	}
	var values [3]int
	for i, option := range [...]int{keepIdle, keepInterval, keepCount} {
		if option == 0 {
			continue
		}
		if values[i], err = getTCP(h, option); err != nil && err != errors.ErrUnsupported {
			return c, err
		}
	}
	c.Idle, c.Interval, c.Count = time.Duration(values[0])*time.Second, time.Duration(values[1])*time.Second, values[2]
	return c, nil
}

// seconds converts d to seconds, rounded up, and to as many as the option has room for. It returns
// -1 for a negative d.
func seconds(d time.Duration) int {
	if d <= 0 {
		return int(max(d, -1))
	}
	return int(min((d-1)/time.Second+1, math.MaxInt32))
}
