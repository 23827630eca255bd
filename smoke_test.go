package socknotify_test

import (
	"testing"
	"time"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

func TestSmoke(t *testing.T) {
	for _, b := range Backends() {
		t.Run(b, func(t *testing.T) {
			p, err := New[int](WithBackend(b))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			x, y, _ := sock.UnixPair(false)
			defer x.Close()
			defer y.Close()
			regs := []Registration[int]{Enable(x.Handle(), 7, EventIn|EventHangup, TriggerLevel|TriggerOneShot)}
			out := make([]Notification[int], 4)
			n, err := p.Process(regs, out, 0)
			t.Log(n, err, regs[0].Result)
			sent := make(chan bool)
			go func() { time.Sleep(50 * time.Millisecond); y.Send([]byte("hi")); close(sent) }()
			defer func() { <-sent }()
			n, err = p.Wait(out, time.Second)
			t.Log(n, err, out[0])
			n, err = p.Wait(out, 20*time.Millisecond)
			t.Log(n, err)
			n, err = p.Process(regs, out, -1)
			t.Log(n, err, out[0])
			go func() { time.Sleep(50 * time.Millisecond); p.Post(9, 11) }()
			n, err = p.Wait(out, -1)
			t.Log(n, err, out[0])
			n, err = p.Process([]Registration[int]{Remove[int](x.Handle())}, out, -1)
			t.Log(n, err, out[0])
			t.Logf("%+v", p.Stats())
			go func() { time.Sleep(50 * time.Millisecond); p.Close() }()
			n, err = p.Wait(out, -1)
			t.Log(n, err)
		})
	}
}
