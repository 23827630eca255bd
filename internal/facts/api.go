package facts

import (
	"errors"
	"strings"
	"time"

	sn "github.com/socknotify/socknotify"
)

// An api is a port or the system's own call, which have the same numbers. The key 0 is not used.
type api interface {
	// do processes one registration and returns "" or its error in short.
	do(op sn.Op, h uintptr, key int, filter sn.Events, t sn.Trigger) string
	// next waits for one notification.
	next(timeout time.Duration) (key int, e sn.Events, ok bool)
	// many enables sockets in one call and describes the outcome.
	many(handles []uintptr) string
	close()
}

type portAPI struct{ p *sn.Port[int] }

func openPort(backend string) (api, error) {
	p, err := sn.New[int](sn.WithBackend(backend))
	return portAPI{p}, err
}

func (a portAPI) close() { a.p.Close() }

func (a portAPI) do(op sn.Op, h uintptr, key int, filter sn.Events, t sn.Trigger) string {
	r := []sn.Registration[int]{{Handle: h, Key: key, Filter: filter, Op: op, Trigger: t}}
	if _, err := a.p.Process(r, nil, 0); err != nil {
		return err.Error()
	}
	return short(r[0].Result)
}

func (a portAPI) next(timeout time.Duration) (int, sn.Events, bool) {
	var one [1]sn.Notification[int]
	n, _ := a.p.Process(nil, one[:], timeout)
	return one[0].Key, one[0].Events, n == 1
}

func (a portAPI) many(handles []uintptr) string {
	regs := make([]sn.Registration[int], len(handles))
	for i, h := range handles {
		regs[i] = sn.Registration[int]{Handle: h, Key: i + 1, Filter: sn.EventIn, Op: sn.OpEnable, Trigger: sn.TriggerLevel | sn.TriggerOneShot}
	}
	if _, err := a.p.Process(regs, nil, 0); err != nil {
		return err.Error()
	}
	for i := range regs {
		if regs[i].Result != nil {
			return regs[i].Result.Error()
		}
	}
	return "taken"
}

// short returns the name of the error in a Result.
func short(err error) string {
	for _, k := range []struct {
		err  error
		name string
	}{
		{sn.ErrInvalid, "ErrInvalid"}, {sn.ErrNotRegistered, "ErrNotRegistered"}, {sn.ErrKeyMismatch, "ErrKeyMismatch"},
		{sn.ErrOtherPort, "ErrOtherPort"}, {sn.ErrBadSocket, "ErrBadSocket"},
	} {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// A watch watches one socket with an api, by edges for changes, and by level for the conditions that hold afterwards.
type watch struct {
	api
	handle uintptr
}

const allEvents = sn.EventsAll

func (w *watch) start(h uintptr) error {
	w.handle = h
	if failed := w.do(sn.OpEnable, h, 1, allEvents, sn.TriggerEdge|sn.TriggerPersistent); failed != "" {
		return errors.New("enable: " + failed)
	}
	w.gather(soon)
	return nil
}

func (w *watch) gather(first time.Duration) sn.Events {
	var all sn.Events
	for end, vain := time.Now().Add(first), 0; vain < looks || time.Now().Before(end); vain++ {
		if _, e, ok := w.next(time.Millisecond); ok {
			all |= e
			end, vain = time.Now().Add(soon), 0
		}
	}
	return all
}

func (w *watch) reported(first time.Duration) (string, bool) {
	e := w.gather(first)
	return names(e), e != 0
}

func (w *watch) holds() string {
	if failed := w.do(sn.OpEnable, w.handle, 1, allEvents, sn.TriggerLevel|sn.TriggerOneShot); failed != "" {
		return failed
	}
	return names(w.gather(soon))
}

// list joins the answers that are not empty.
func list(answers ...string) string {
	var said []string
	for _, a := range answers {
		if a != "" {
			said = append(said, a)
		}
	}
	return strings.Join(said, ", ")
}
