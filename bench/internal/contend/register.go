package contend

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"

	"github.com/socknotify/socknotify/bench/internal/param"
)

// perCall is the number of operations in a call.
const perCall = 64

const oneShot = socknotify.TriggerLevel | socknotify.TriggerOneShot

func sockets(n int) ([]*sock.Socket, error) {
	all := make([]*sock.Socket, 0, n)
	for range n {
		s, err := sock.New(sock.UDP4)
		if err == nil {
			err = s.Bind(sock.Loopback) // an unbound socket is ready on every system
		}
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func closeAll(all []*sock.Socket) {
	for _, s := range all {
		s.Close()
	}
}

// portRegister removes and registers each of many registered sockets in turn. An operation is a removal or a
// registration. A removal includes the dequeue of its EventRemove.
func portRegister(backend string) func(param.Params, func(string)) (param.Outcome, error) {
	return func(p param.Params, _ func(string)) (param.Outcome, error) {
		all, err := sockets(p.Registered)
		if err != nil {
			return param.Outcome{}, err
		}
		defer closeAll(all)
		port, err := socknotify.New[int](socknotify.WithBackend(backend))
		if err != nil {
			return param.Outcome{}, err
		}
		defer port.Close()
		out := make([]socknotify.Notification[int], perCall)
		regs := make([]socknotify.Registration[int], 0, perCall)
		call := func(out []socknotify.Notification[int]) (int, error) {
			n, err := port.Process(regs, out, 0)
			for i := range regs {
				err = errors.Join(err, regs[i].Result)
			}
			regs = regs[:0]
			return n, err
		}
		enable := func(i int) {
			regs = append(regs, socknotify.Registration[int]{Handle: all[i].Handle(), Key: i, Filter: socknotify.EventIn | socknotify.EventHangup, Op: socknotify.OpEnable, Trigger: oneShot})
		}
		for i := range all {
			enable(i)
			if len(regs) == perCall || i == len(all)-1 {
				if _, err := call(nil); err != nil {
					return param.Outcome{}, err
				}
			}
		}
		ops, next := int64(0), 0
		w := startWatch()
		for until := time.Now().Add(p.Duration()); time.Now().Before(until); {
			for i := range perCall {
				regs = append(regs, socknotify.Registration[int]{Handle: all[(next+i)%len(all)].Handle(), Op: socknotify.OpRemove})
			}
			for left := perCall; left > 0; {
				n, err := call(out[:left])
				if err != nil {
					return param.Outcome{}, err
				}
				left -= n
			}
			for i := range perCall {
				enable((next + i) % len(all))
			}
			if _, err := call(nil); err != nil {
				return param.Outcome{}, err
			}
			next = (next + perCall) % len(all)
			ops += 2 * perCall
		}
		return w.stop(ops), nil
	}
}

// loopRegister does the same with epoll by hand.
func loopRegister(p param.Params, _ func(string)) (param.Outcome, error) {
	all, err := sockets(p.Registered)
	if err != nil {
		return param.Outcome{}, err
	}
	defer closeAll(all)
	l, err := newLoop(1)
	if err != nil {
		return param.Outcome{}, err
	}
	for i, s := range all {
		if err := l.add(int(s.Handle()), i); err != nil {
			return param.Outcome{}, err
		}
	}
	ops, next := int64(0), 0
	w := startWatch()
	for until := time.Now().Add(p.Duration()); time.Now().Before(until); {
		for range perCall {
			fd := int(all[next].Handle())
			if err := errors.Join(unix.EpollCtl(l.fd, unix.EPOLL_CTL_DEL, fd, nil), l.add(fd, next)); err != nil {
				return param.Outcome{}, err
			}
			next = (next + 1) % len(all)
		}
		ops += 2 * perCall
	}
	return w.stop(ops), nil
}

// portIdle measures the live memory of idle registrations on the port, without that of their sockets.
func portIdle(backend string) func(param.Params, func(string)) (param.Outcome, error) {
	return func(p param.Params, _ func(string)) (param.Outcome, error) {
		all, err := sockets(p.Registered)
		if err != nil {
			return param.Outcome{}, err
		}
		defer closeAll(all)
		port, err := socknotify.New[int](socknotify.WithBackend(backend))
		if err != nil {
			return param.Outcome{}, err
		}
		defer port.Close()
		before := live()
		for i, s := range all {
			regs := []socknotify.Registration[int]{{Handle: s.Handle(), Key: i, Filter: socknotify.EventIn, Op: socknotify.OpEnable, Trigger: oneShot}}
			if _, err := port.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
				return param.Outcome{}, errors.Join(err, regs[0].Result)
			}
		}
		per := (live() - before) / float64(len(all))
		runtime.KeepAlive(port)
		return param.Outcome{Ops: float64(len(all)), Bytes: &per}, nil
	}
}

// live returns the size of the heap in use.
func live() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
