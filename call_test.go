package socknotify_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/porttest"
)

// An error of a call names the call.
func TestErrorsNameTheCall(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		var one [1]Notification[string]
		var noContext context.Context
		_, process := p.ProcessContext(noContext, nil, one[:])
		_, wait := p.Wait(noContext, one[:])
		for name, err := range map[string]error{
			"ProcessContext": process, "Wait": wait, "Accept": p.Accept(nil, "", 1),
		} {
			if !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), "socknotify: "+name+": ") {
				t.Errorf("%v; want ErrInvalid, and the name of %s", err, name)
			}
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
