package conformance

import (
	"bytes"
	"os"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// opMixedOrder has completions in every state at once: of receives whose bytes were there, and of such as
// waited, dequeued one by one and in batches.
func opMixedOrder(e *env) {
	for entries := 1; entries <= 4; entries++ {
		p := e.port()
		s, peer := e.unix()
		const count = 12
		var ops [count]op
		var bufs [count][1]byte
		e.send(peer, "abc")
		settle(e, s, stateIn)
		for i := range 6 {
			e.recv(p, s, i, bufs[i][:], &ops[i])
		}
		e.send(peer, "defgh")
		settle(e, s, stateIn)
		for i := 6; i < count; i++ {
			e.recv(p, s, i, bufs[i][:], &ops[i])
			p.Post("post", 0)
		}
		e.send(peer, "ijkl")
		buf := make([]note, entries)
		for next := 0; next < count; {
			n, err := p.Process(nil, buf, limit)
			if err != nil {
				e.Fatalf("after %d completions: %v", next, err)
			}
			for _, got := range buf[:n] {
				if got.Kind() == socknotify.KindPosted {
					continue
				}
				if got.Key != next || overlapped.Of(&got) != &ops[next] || bufs[next][0] != 'a'+byte(next) {
					e.Fatalf("%d entries: completion of %v, which received %q; want %d", entries, got.Key, bufs[next], next)
				}
				next++
			}
		}
	}
}

func opSendOrder(e *env) {
	p := e.port()
	s, peer := e.unix()
	var ops [4]op
	var want []byte
	for i := range ops {
		b := bytes.Repeat([]byte{'a' + byte(i)}, 300<<10)
		want = append(want, b...)
		e.startSend(p, s, i, b, &ops[i])
	}
	var got []byte
	next := 0
	e.until("all is sent", func() bool {
		data, err := receiveAll(peer)
		if err != nil {
			e.Fatalf("receive: %v", err)
		}
		got = append(got, data...)
		for _, c := range e.now(p) {
			if n, err := e.result(c, next, &ops[next]); n != 300<<10 || err != nil {
				e.Fatalf("completed with %d, %v", n, err)
			}
			next++
		}
		return len(got) == len(want) && next == len(ops)
	})
	if !bytes.Equal(got, want) {
		e.Errorf("what was sent arrived in another order")
	}
}

// opHappensBefore lets the race detector look at what goes with an operation.
func opHappensBefore(e *env) {
	p := e.port()
	s, peer := e.unix()
	type state struct {
		o     op
		b     [8]byte
		count int
	}
	const rounds = 100
	done := make(chan *state)
	stop := e.workers(p, 2, 1, func(got note) {
		st := got.Key.(*state)
		st.count++
		st.b[7]++
		done <- st
	})
	st := new(state)
	for i := range rounds {
		st.count++
		if i%2 == 0 {
			e.recv(p, s, st, st.b[:4], &st.o)
			e.send(peer, "x")
		} else {
			e.send(peer, "x")
			e.recv(p, s, st, st.b[:4], &st.o)
		}
		<-done
	}
	if st.count != 2*rounds {
		e.Errorf("count = %d", st.count)
	}
	stop()
}

func opAllocEcho(e *env) {
	p := e.port()
	for _, pair := range []func() (*socket, *socket){e.unix, e.tcp} {
		s, peer := pair()
		var recv, send op
		b, x := make([]byte, 64), []byte("x")
		out := make([]note, 4)
		k := any(&key{"k"})
		wait := func() {
			if n, err := p.Process(nil, out, limit); n != 1 {
				e.Fatalf("Wait = %d, %v", n, err)
			}
		}
		e.allocates(func() {
			overlapped.Recv(p, s.Socket, k, b, &recv)
			peer.Send(x)
			wait()
			overlapped.Send(p, s.Socket, k, b[:1], &send)
			wait()
			peer.Recv(x)
		})
	}
}

func opAllocDatagrams(e *env) {
	p := e.port()
	s, peer := e.udp()
	var recv, send op
	b, x := make([]byte, 64), []byte("x")
	out := make([]note, 4)
	k := any(&key{"k"})
	e.allocates(func() {
		overlapped.RecvFrom(p, s.Socket, k, b, &recv)
		overlapped.Send(p, peer.Socket, k, x, &send)
		for got := 0; got < 2; {
			n, err := p.Process(nil, out, limit)
			if err != nil {
				e.Fatalf("Wait: %v", err)
			}
			got += n
		}
	})
}

func opAllocFiles(e *env) {
	p := e.port()
	f := e.file("hello")
	var o op
	b := make([]byte, 5)
	out := make([]note, 4)
	k := any(&key{"k"})
	e.allocates(func() {
		overlapped.ReadAt(p, f, k, b, 0, &o)
		if n, err := p.Process(nil, out, limit); n != 1 {
			e.Fatalf("Wait = %d, %v", n, err)
		}
	})
}

// file makes a file for the case.
func (e *env) file(data string) *os.File {
	e.Helper()
	f, err := os.CreateTemp(e.TempDir(), "")
	if err == nil {
		_, err = f.WriteString(data)
	}
	if err != nil {
		e.Fatalf("file: %v", err)
	}
	e.Cleanup(func() { f.Close() })
	return f
}

// opStanding has a receive wait for a socket of which something holds that no receive ends.
func opStanding(e *env) {
	for _, pair := range []func() (*socket, *socket){e.datagrams, e.udp} {
		p := e.port()
		s, _ := pair()
		var o op
		e.must(s.Shutdown(sock.ShutRead))
		e.recv(p, s, "k", make([]byte, 4), &o)
		got := e.now(p)
		if len(got) == 0 { // not every system takes it for an end
			e.quiet(p)
			e.cancel(p, &o)
			got = e.now(p)
		}
		if len(got) != 1 {
			e.Fatalf("%d completions", len(got))
		}
		e.result(got[0], "k", &o)
		e.none(p)
	}
}
