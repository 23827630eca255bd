package socknotify_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/porttest"
)

func TestWholeCallErrors(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		var one [1]Notification[string]
		var noContext context.Context
		regs := []Registration[string]{{Result: errors.New("earlier")}}
		cases := []struct {
			name string
			call func() (int, error)
			want error
		}{
			{"Process nothing", func() (int, error) { return p.Process(nil, nil, 0) }, nil},
			{"Process OpNone", func() (int, error) { return p.Process(regs, nil, 0) }, nil},
			{"Process wait without entries", func() (int, error) { return p.Process(nil, nil, 1) }, ErrInvalid},
			{"Process forever without entries", func() (int, error) { return p.Process(regs, nil, -1) }, ErrInvalid},
			{"Wait without entries", func() (int, error) { return p.Wait(t.Context(), nil) }, ErrInvalid},
			{"nil context", func() (int, error) { return p.Wait(noContext, one[:]) }, ErrInvalid},
			{"poll", func() (int, error) { return p.Process(nil, one[:], 0) }, ErrTimeout},
			{"shortest", func() (int, error) { return p.Process(nil, one[:], 1) }, ErrTimeout},
		}
		for _, c := range cases {
			if n, err := c.call(); n != 0 || !errors.Is(err, c.want) {
				t.Errorf("%s: %d, %v; want %v", c.name, n, err, c.want)
			}
		}
		for _, call := range []func() error{
			func() error {
				_, err := p.ProcessContext(noContext, nil, one[:])
				return fmt.Errorf("ProcessContext: %w", err)
			},
			func() error { _, err := p.Wait(noContext, one[:]); return fmt.Errorf("Wait: %w", err) },
			func() error { return fmt.Errorf("Accept: %w", p.Accept(nil, "", 1)) },
		} {
			err := call()
			name, rest, _ := strings.Cut(err.Error(), ": ")
			if !errors.Is(err, ErrInvalid) || !strings.HasPrefix(rest, "socknotify: "+name+": ") {
				t.Errorf("%v; want ErrInvalid, and the name of the call", err)
			}
		}
		if regs[0].Result != nil {
			t.Errorf("C5: OpNone left the earlier Result %v", regs[0].Result)
		}
		if !errors.Is(ErrTimeout, os.ErrDeadlineExceeded) || !errors.Is(ErrClosed, net.ErrClosed) {
			t.Error("ErrTimeout and ErrClosed do not speak the standard library's language")
		}
		var timeout net.Error
		if !errors.As(ErrTimeout, &timeout) || !timeout.Timeout() {
			t.Error("ErrTimeout is no net.Error that timed out")
		}
		p.Close()
		for name, call := range map[string]func() error{
			"Process":     func() error { _, err := p.Process(nil, nil, 0); return err },
			"Process bad": func() error { _, err := p.Process(nil, nil, -1); return err },
			"Wait":        func() error { _, err := p.Wait(t.Context(), one[:]); return err },
			"Wait bad":    func() error { _, err := p.Wait(t.Context(), nil); return err },
			"Deregister":  func() error { _, err := p.Deregister(Registration[string]{}); return err },
			"Post":        func() error { return p.Post("", 0) },
		} {
			if err := call(); err != ErrClosed {
				t.Errorf("%s on a closed port: %v", name, err)
			}
		}
		for range p.All(t.Context()) {
			t.Error("a closed port yields")
		}
	})
}

// Timeouts near the ends of int64 neither overflow nor end early.
func TestExtremeTimeouts(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		for _, timeout := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, 1 << 62, 1<<62 - 1, math.MinInt64, -1} {
			got := make(chan error)
			go func() {
				var one [1]Notification[string]
				_, err := p.Process(nil, one[:], timeout)
				got <- err
			}()
			porttest.Waiting(t, p, 1)
			p.Post("k", 0)
			if err := <-got; err != nil {
				t.Errorf("timeout %d: %v", timeout, err)
			}
		}
	})
}

func TestInvalidRegistrations(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		x, _ := porttest.Pair(t)
		h := x.Handle()
		cases := []struct {
			field string
			reg   Registration[string]
		}{
			{"Op", Registration[string]{Handle: h, Op: 8}},
			{"Op", Registration[string]{Handle: h, Op: OpEnable | OpRemove, Trigger: porttest.OneShot}},
			{"Filter", porttest.EnableHandle(h, "k", EventErr, porttest.OneShot)},
			{"Filter", porttest.EnableHandle(h, "k", EventIn|EventRemove, porttest.OneShot)},
			{"Filter", porttest.EnableHandle(h, "k", 0x100, porttest.OneShot)},
			{"Trigger", porttest.EnableHandle(h, "k", EventIn, 0)},
			{"Trigger", porttest.EnableHandle(h, "k", EventIn, TriggerOneShot)},
			{"Trigger", porttest.EnableHandle(h, "k", EventIn, TriggerLevel|TriggerEdge)},
			{"Trigger", porttest.EnableHandle(h, "k", EventIn, TriggerLevel|TriggerOneShot|TriggerPersistent)},
			{"Trigger", porttest.EnableHandle(h, "k", EventIn, TriggerLevel|16)},
		}
		for _, c := range cases {
			// G6: before any look-up, so a bad handle makes no difference.
			for _, handle := range []uintptr{h, ^uintptr(0)} {
				c.reg.Handle = handle
				regs := []Registration[string]{c.reg}
				if _, err := p.Process(regs, nil, 0); err != nil {
					t.Fatal(err)
				}
				if err := regs[0].Result; !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.field) {
					t.Errorf("%+v: %v; want ErrInvalid naming %s", c.reg, err, c.field)
				}
			}
		}
		// The fields that only OpEnable reads are not looked at.
		porttest.Do(t, p, porttest.EnableHandle(h, "k", EventIn, TriggerLevel))
		porttest.Do(t, p, Registration[string]{Handle: h, Op: OpDisable, Filter: 0xffff, Trigger: 0xff, Drained: true})
		porttest.Do(t, p, Registration[string]{Handle: h, Op: OpRemove, Filter: 0xffff, Trigger: 0xff, Key: "other"})
	})
}

func TestKeysThatDoNotCompare(t *testing.T) {
	onEachName2(t, func(t *testing.T, p *Port[any]) {
		x, _ := porttest.Pair(t)
		regs := []Registration[any]{porttest.EnableHandle[any](x.Handle(), []int{1}, EventIn, porttest.OneShot)}
		p.Process(regs, nil, 0)
		if err := regs[0].Result; !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "Key") {
			t.Fatalf("G2: %v", err)
		}
		porttest.Do(t, p, porttest.EnableHandle[any](x.Handle(), "fine", EventIn, porttest.OneShot))
		p.Process(regs, nil, 0)
		if err := regs[0].Result; !errors.Is(err, ErrInvalid) {
			t.Fatalf("G2: %v", err)
		}
		if p.Post([]int{2}, 0) != nil {
			t.Fatal("Post does not compare keys")
		}
		if nt := porttest.Next(t, p); nt.Key.([]int)[0] != 2 {
			t.Fatalf("got %+v", nt)
		}
	})
}

// Keys that are no interfaces can be NaN, too.
func TestKeysThatAreNaN(t *testing.T) {
	nan := math.NaN()
	t.Run("float64", func(t *testing.T) { refusesKey(t, nan, 1.5) })
	t.Run("complex64", func(t *testing.T) { refusesKey(t, complex64(complex(nan, 0)), 1i) })
	t.Run("array", func(t *testing.T) { refusesKey(t, [2]float64{0, nan}, [2]float64{0, 1}) })
	type key struct {
		name string
		at   struct{ x, y float32 }
	}
	bad := key{name: "k"}
	bad.at.y = float32(nan)
	t.Run("struct", func(t *testing.T) { refusesKey(t, bad, key{name: "k"}) })
}

func refusesKey[K comparable](t *testing.T, bad, good K) {
	p, err := New[K]()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x, _ := porttest.Pair(t)
	for range 2 {
		for _, r := range []Registration[K]{porttest.EnableHandle(x.Handle(), bad, EventIn, porttest.OneShot), Enable(x, bad, EventIn, porttest.OneShot)} {
			for _, r.Drained = range []bool{false, true} {
				regs := []Registration[K]{r}
				p.Process(regs, nil, 0)
				if err := regs[0].Result; !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "Key") {
					t.Fatalf("G2: %v", err)
				}
			}
		}
		regs := []Registration[K]{porttest.EnableHandle(x.Handle(), good, EventIn, porttest.OneShot)}
		if p.Process(regs, nil, 0); regs[0].Result != nil {
			t.Fatal(regs[0].Result)
		}
	}
}

func onEachName2(t *testing.T, f func(t *testing.T, p *Port[any])) {
	for _, name := range Backends() {
		t.Run(name, func(t *testing.T) {
			p, err := New[any](WithBackend(name))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			f(t, p)
		})
	}
}

// The error for the backend that has been removed names the page that says why.
func TestRemovedBackend(t *testing.T) {
	for from, opts := range map[string][]Option{"WithBackend": {WithBackend("iouring")}, BackendEnv: nil} {
		t.Setenv(BackendEnv, "iouring")
		_, err := New[int](opts...)
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("%s: %v", from, err)
		}
		for _, want := range []string{from, "docs/decisions/io_uring.md"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not name %s", err, want)
			}
		}
	}
}

func TestChoiceOfBackend(t *testing.T) {
	for _, name := range Backends() {
		t.Setenv(BackendEnv, name)
		p, err := New[int]()
		if err != nil {
			t.Fatal(err)
		}
		if p.Backend() != name {
			t.Errorf("%s=%s made a port on %s", BackendEnv, name, p.Backend())
		}
		p.Close()
	}
	t.Setenv(BackendEnv, "quill")
	for from, opts := range map[string][]Option{"WithBackend": {WithBackend("abacus")}, BackendEnv: nil} {
		_, err := New[int](opts...)
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("%s: %v", from, err)
		}
		for _, want := range append(Backends(), from) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not name %s", err, want)
			}
		}
	}
	p, err := New[int](WithBackend(Backends()[0]), nil) // the option goes before the environment
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
}

func TestCancelled(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		cause := errors.New("the cause")
		x, _ := porttest.Pair(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error)
		go func() {
			var one [1]Notification[string]
			_, err := p.ProcessContext(ctx, []Registration[string]{porttest.EnableHandle(x.Handle(), "k", EventOut, porttest.OneShot), porttest.DisableHandle[string](x.Handle())}, one[:])
			got <- err
		}()
		porttest.Waiting(t, p, 1)
		cancel(cause)
		if err := <-got; err != cause {
			t.Fatalf("C9: %v", err)
		}
		// The registration stays; a context that is done already leaves what there is.
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventOut, porttest.OneShot))
		var one [1]Notification[string]
		if n, err := p.Wait(ctx, one[:]); n != 0 || err != cause {
			t.Fatalf("C9: %d, %v", n, err)
		}
		porttest.Next(t, p)
	})
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		(EventIn | EventHangup | EventErr).String(): "IN|HANGUP|ERR",
		Events(0).String():                          "NONE",
		(EventOut | 0x100).String():                 "OUT|0x100",
		OpNone.String():                             "none",
		(OpEnable | OpRemove).String():              "enable|remove",
		Op(8).String():                              "0x8",
		(TriggerLevel | TriggerOneShot).String():    "level|one-shot",
		Trigger(0).String():                         "0",
	} {
		if got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
