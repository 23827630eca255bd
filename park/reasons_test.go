package park

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
)

// A way is one in which a connection gets parked.
type way struct {
	name   string
	config Config
	park   func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking
	atOnce bool // the function runs at once, because there is something to read
	kept   bool // not with Writable
}

// A parking is a connection that was parked in one of these ways.
type parking struct {
	conn    net.Conn
	release func()   // frees the lot's worker; may be nil
	end     func()   // lets the function return that has parked the connection; may be nil
	client  net.Conn // sends the rest of the header
	header  string
}

func stateOf(l *Lot, conn net.Conn) state {
	pc := l.findConn(conn)
	if pc == nil {
		return unparked
	}
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.state
}

// in waits until a connection is in a state. With Writable it may have left that already.
func in(t *testing.T, l *Lot, conn net.Conn, o Options, s state) {
	t.Helper()
	if !o.Writable {
		waitFor(t, "the state", func() bool { return stateOf(l, conn) == s })
	}
}

var ways = []way{
	{name: "plain", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		conn, _ := pair(t, "tcp")
		must(t, l.ParkWith(conn, o, f))
		return parking{conn: conn}
	}},
	{name: "again", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		conn, client := pair(t, "tcp")
		parked := make(chan error)
		must(t, l.Park(conn, func(c net.Conn) {
			c.Read(make([]byte, 1))
			parked <- l.ParkWith(c, o, f)
		}))
		send(t, client, "x")
		must(t, receive(t, parked))
		return parking{conn: conn}
	}},
	{name: "wrapped", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, _ := pair(t, "tcp")
		conn := Wrap(embeddingConn{server})
		must(t, l.ParkWith(conn, o, f))
		return parking{conn: conn}
	}},
	{name: "TLS, half a record", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client, recorder := tlsKind{version: tls.VersionTLS13}.pair(t)
		send(t, client, "first")
		expect(t, server, "first")
		recorder.on = true
		send(t, client, "second")
		_, err := recorder.Conn.Write(recorder.held[:len(recorder.held)/2])
		must(t, err)
		conn := Wrap(server)
		got := make(chan error)
		must(t, l.Park(conn, func(c net.Conn) { // makes package tls hold the half
			for range 10 { // on a busy machine a deadline may have passed before Read begins
				c.SetReadDeadline(time.Now().Add(time.Millisecond))
				c.Read(make([]byte, 1))
			}
			got <- l.ParkWith(c, o, f)
		}))
		must(t, receive(t, got))
		return parking{conn: conn}
	}},
	{name: "a header that was read", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := pair(t, "tcp")
		send(t, client, "header\n")
		conn := Wrap(newHeaderConn(server))
		conn.RemoteAddr()
		must(t, l.ParkWith(conn, o, f))
		in(t, l, conn, o, parked)
		return parking{conn: conn}
	}},
	{name: "a header that comes", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := pair(t, "tcp")
		conn := Wrap(newHeaderConn(server))
		must(t, l.ParkWith(conn, o, f))
		waitFor(t, "a worker settles it", func() bool { return stateOf(l, conn) == settling })
		return parking{conn: conn, client: client, header: "header\n"}
	}},
	{name: "half a header", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := pair(t, "tcp")
		conn := Wrap(newHeaderConn(server))
		o.fresh = true
		must(t, l.ParkWith(conn, o, f))
		send(t, client, "hea")
		waitFor(t, "a worker settles it", func() bool { return stateOf(l, conn) == settling })
		return parking{conn: conn, client: client, header: "der\n"}
	}},
	{name: "no header yet", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := pair(t, "tcp")
		conn := Wrap(newHeaderConn(server))
		o.fresh = true
		must(t, l.ParkWith(conn, o, f))
		return parking{conn: conn, client: client, header: "header\n"}
	}},
	{name: "a header, queued", config: Config{MaxRunning: 1}, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		release := blockWorker(t, l)
		t.Cleanup(release)
		server, client := pair(t, "tcp")
		conn := Wrap(newHeaderConn(server))
		must(t, l.ParkWith(conn, o, f))
		waitFor(t, "queued", func() bool { return l.Stats().Waiting == 1 })
		return parking{conn: conn, release: release, client: client, header: "header\n"}
	}},
	{name: "no worker is free", config: Config{MaxRunning: 1}, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		release := blockWorker(t, l)
		t.Cleanup(release)
		conn, _ := pair(t, "tcp")
		must(t, l.ParkWith(conn, o, f))
		return parking{conn: conn, release: release}
	}},
	{name: "kept", kept: true, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := pair(t, "tcp")
		conn := Wrap(embeddingConn{server})
		parked, leave := make(chan error), make(chan bool)
		must(t, l.Park(conn, func(c net.Conn) {
			c.Read(make([]byte, 1))
			parked <- l.ParkWith(c, o, f)
			<-leave // the lot hands it over
		}))
		send(t, client, "x")
		must(t, receive(t, parked))
		return parking{conn: conn, end: func() { close(leave) }}
	}},
	{name: "lingering", kept: true, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := pair(t, "tcp")
		conn := Wrap(embeddingConn{server})
		calls, ended := make(chan error, 1), make(chan bool)
		var sent atomic.Bool
		var serve func(net.Conn)
		serve = func(c net.Conn) {
			if !sent.Swap(false) {
				f(c)
				close(ended)
				return
			}
			c.Read(make([]byte, 1))
			calls <- l.ParkWith(c, o, serve)
		}
		must(t, l.Park(conn, serve))
		for {
			sent.Store(true)
			send(t, client, "x")
			select {
			case err := <-calls:
				must(t, err)
			case <-ended: // the timeout
				return parking{conn: conn}
			}
			for s := kept; s == kept; runtime.Gosched() {
				pc := conn.parkedConn.Load()
				pc.mu.Lock()
				s = pc.state
				lingers := pc.keeping == keepLingering
				pc.mu.Unlock()
				if lingers {
					return parking{conn: conn}
				}
			}
		}
	}},
	{name: "bytes that the wrapper holds", atOnce: true, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := pair(t, "tcp")
		in := bufio.NewReader(server)
		send(t, client, "x")
		_, err := in.Peek(1)
		must(t, err)
		conn := Wrap(&bufferedConn{server, in})
		must(t, l.ParkWith(conn, o, f))
		return parking{conn: conn}
	}},
	{name: "TLS, a whole record", atOnce: true, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, _ := tlsPairWithBytesAhead(t, "x")
		conn := Wrap(server)
		must(t, l.ParkWith(conn, o, f))
		return parking{conn: conn}
	}},
	{name: "a header and bytes", atOnce: true, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := pair(t, "tcp")
		conn := Wrap(newHeaderConn(server))
		must(t, l.ParkWith(conn, o, f))
		waitFor(t, "a worker settles it", func() bool { return stateOf(l, conn) == settling })
		send(t, client, "header\nx")
		return parking{conn: conn}
	}},
}

// A connection that is parked in any way has its call for any reason, once, and its Read has the result for that.
func TestReasons(t *testing.T) {
	for _, r := range []struct {
		name string
		o    Options
		give func(t *testing.T, l *Lot, w way, p parking)
		want error
	}{
		{"Wake", Options{}, func(t *testing.T, l *Lot, w way, p parking) {
			if !l.Wake(p.conn) && !w.atOnce {
				t.Error("not woken")
			}
		}, os.ErrDeadlineExceeded},
		{"Writable", Options{Writable: true}, func(*testing.T, *Lot, way, parking) {}, os.ErrDeadlineExceeded},
		{"timeout", Options{IdleTimeout: 20 * time.Millisecond}, func(*testing.T, *Lot, way, parking) {}, os.ErrDeadlineExceeded},
		{"Close", Options{}, func(t *testing.T, l *Lot, _ way, _ parking) { must(t, l.Close()) }, net.ErrClosed},
	} {
		for _, w := range ways {
			if w.kept && r.o.Writable {
				continue
			}
			t.Run(r.name+", "+w.name, func(t *testing.T) {
				t.Parallel()
				l := newLot(t, w.config)
				ends := r.name == "timeout" || r.name == "Close" // the lot sets the deadline, or closes the connection
				outcomes := make(chan outcome, 10)
				p := w.park(t, l, r.o, func(conn net.Conn) {
					if !ends {
						conn.SetReadDeadline(time.Now().Add(time.Millisecond))
					}
					buf := make([]byte, 10)
					n, err := conn.Read(buf)
					outcomes <- outcome{string(buf[:n]), err, conn}
				})
				if !w.atOnce && r.o == (Options{}) {
					wantEmpty(t, outcomes)
				}
				r.give(t, l, w, p)
				if p.release != nil {
					p.release()
				}
				if p.header != "" && !ends {
					send(t, p.client, p.header)
				}
				o := receive(t, outcomes)
				if read := o.text == "x" && o.err == nil; !(w.atOnce && read) && !(errors.Is(o.err, r.want) && (ends || !w.atOnce)) {
					t.Errorf("%+v, want %v", o, r.want)
				}
				if p.end != nil {
					p.end()
				}
				must(t, l.Shutdown(t.Context()))
				wantEmpty(t, outcomes)
			})
		}
	}
}

// A timeout that has passed ends no later parking of the same connection.
func TestExpireDuringPark(t *testing.T) {
	l := newLot(t, Config{})
	conn, _ := pair(t, "tcp")
	stop := make(chan bool)
	var expiring sync.WaitGroup
	defer expiring.Wait()
	defer close(stop)
	must(t, l.Park(conn, func(net.Conn) {}))
	pc := l.findConn(conn)
	for range 2 {
		expiring.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					l.expire(pc) // as the timer wheel does
				}
			}
		})
	}
	for !l.Wake(conn) {
		runtime.Gosched()
	}
	waitFor(t, "the function has run", func() bool { return l.Stats().Running+l.Stats().Parked == 0 })
	for range 25 {
		again, early := make(chan error, 1), make(chan bool, 1)
		must(t, l.ParkWith(conn, Options{IdleTimeout: 1}, func(c net.Conn) {
			n := l.Stats().Expired
			again <- l.ParkWith(c, Options{IdleTimeout: time.Hour}, func(net.Conn) { early <- l.Stats().Expired != n })
		}))
		must(t, receive(t, again))
		await.Pause(20 * time.Microsecond) // for the other goroutines to find it expired, if they can
		l.Wake(conn)
		if receive(t, early) {
			t.Fatal("a timeout of an hour has passed")
		}
	}
}
