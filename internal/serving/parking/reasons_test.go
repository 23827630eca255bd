package parking

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

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

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
		await.Until(t, "the state", func() bool { return stateOf(l, conn) == s })
	}
}

var ways = []way{
	{name: "plain", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		conn, _ := conntest.Pair(t, "tcp")
		check.OK(t, l.ParkWith(conn, o, f))
		return parking{conn: conn}
	}},
	{name: "again", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		conn, client := conntest.Pair(t, "tcp")
		parked := make(chan error)
		check.OK(t, l.Park(conn, func(c net.Conn) {
			c.Read(make([]byte, 1))
			parked <- l.ParkWith(c, o, f)
		}))
		conntest.Send(t, client, "x")
		check.OK(t, await.Value(t, parked))
		return parking{conn: conn}
	}},
	{name: "wrapped", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, _ := conntest.Pair(t, "tcp")
		conn := Wrap(conntest.Embedding(server))
		check.OK(t, l.ParkWith(conn, o, f))
		return parking{conn: conn}
	}},
	{name: "TLS, half a record", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client, recorder := conntest.TLSKind{Version: tls.VersionTLS13}.Pair(t)
		conntest.Send(t, client, "first")
		conntest.Expect(t, server, "first")
		recorder.On = true
		conntest.Send(t, client, "second")
		_, err := recorder.Conn.Write(recorder.Held[:len(recorder.Held)/2])
		check.OK(t, err)
		conn := Wrap(server)
		got := make(chan error)
		check.OK(t, l.Park(conn, func(c net.Conn) { // makes package tls hold the half
			for range 10 { // on a busy machine a deadline may have passed before Read begins
				c.SetReadDeadline(time.Now().Add(time.Millisecond))
				c.Read(make([]byte, 1))
			}
			got <- l.ParkWith(c, o, f)
		}))
		check.OK(t, await.Value(t, got))
		return parking{conn: conn}
	}},
	{name: "a header that was read", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := conntest.Pair(t, "tcp")
		conntest.Send(t, client, "header\n")
		conn := Wrap(conntest.NewHeaderConn(server))
		conn.RemoteAddr()
		check.OK(t, l.ParkWith(conn, o, f))
		in(t, l, conn, o, parked)
		return parking{conn: conn}
	}},
	{name: "a header that comes", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := conntest.Pair(t, "tcp")
		conn := Wrap(conntest.NewHeaderConn(server))
		check.OK(t, l.ParkWith(conn, o, f))
		await.Until(t, "a worker settles it", func() bool { return stateOf(l, conn) == settling })
		return parking{conn: conn, client: client, header: "header\n"}
	}},
	{name: "half a header", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := conntest.Pair(t, "tcp")
		conn := Wrap(conntest.NewHeaderConn(server))
		o.Fresh = true
		check.OK(t, l.ParkWith(conn, o, f))
		conntest.Send(t, client, "hea")
		await.Until(t, "a worker settles it", func() bool { return stateOf(l, conn) == settling })
		return parking{conn: conn, client: client, header: "der\n"}
	}},
	{name: "no header yet", park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := conntest.Pair(t, "tcp")
		conn := Wrap(conntest.NewHeaderConn(server))
		o.Fresh = true
		check.OK(t, l.ParkWith(conn, o, f))
		return parking{conn: conn, client: client, header: "header\n"}
	}},
	{name: "a header, queued", config: Config{MaxRunning: 1}, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		release := blockWorker(t, l)
		t.Cleanup(release)
		server, client := conntest.Pair(t, "tcp")
		conn := Wrap(conntest.NewHeaderConn(server))
		check.OK(t, l.ParkWith(conn, o, f))
		await.Until(t, "queued", func() bool { return l.Counts().Waiting == 1 })
		return parking{conn: conn, release: release, client: client, header: "header\n"}
	}},
	{name: "no worker is free", config: Config{MaxRunning: 1}, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		release := blockWorker(t, l)
		t.Cleanup(release)
		conn, _ := conntest.Pair(t, "tcp")
		check.OK(t, l.ParkWith(conn, o, f))
		return parking{conn: conn, release: release}
	}},
	{name: "kept", kept: true, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := conntest.Pair(t, "tcp")
		conn := Wrap(conntest.Embedding(server))
		parked, leave := make(chan error), make(chan bool)
		check.OK(t, l.Park(conn, func(c net.Conn) {
			c.Read(make([]byte, 1))
			parked <- l.ParkWith(c, o, f)
			<-leave // the lot hands it over
		}))
		conntest.Send(t, client, "x")
		check.OK(t, await.Value(t, parked))
		return parking{conn: conn, end: func() { close(leave) }}
	}},
	{name: "lingering", kept: true, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := conntest.Pair(t, "tcp")
		conn := Wrap(conntest.Embedding(server))
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
		check.OK(t, l.Park(conn, serve))
		for {
			sent.Store(true)
			conntest.Send(t, client, "x")
			select {
			case err := <-calls:
				check.OK(t, err)
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
		server, client := conntest.Pair(t, "tcp")
		in := bufio.NewReader(server)
		conntest.Send(t, client, "x")
		_, err := in.Peek(1)
		check.OK(t, err)
		conn := Wrap(conntest.Buffer(server, in))
		check.OK(t, l.ParkWith(conn, o, f))
		return parking{conn: conn}
	}},
	{name: "TLS, a whole record", atOnce: true, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, _ := tlsPairWithBytesAhead(t, "x")
		conn := Wrap(server)
		check.OK(t, l.ParkWith(conn, o, f))
		return parking{conn: conn}
	}},
	{name: "a header and bytes", atOnce: true, park: func(t *testing.T, l *Lot, o Options, f func(net.Conn)) parking {
		server, client := conntest.Pair(t, "tcp")
		conn := Wrap(conntest.NewHeaderConn(server))
		check.OK(t, l.ParkWith(conn, o, f))
		await.Until(t, "a worker settles it", func() bool { return stateOf(l, conn) == settling })
		conntest.Send(t, client, "header\nx")
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
		{"Close", Options{}, func(t *testing.T, l *Lot, _ way, _ parking) { check.OK(t, l.Close()) }, net.ErrClosed},
	} {
		for _, w := range ways {
			if w.kept && r.o.Writable {
				continue
			}
			t.Run(r.name+", "+w.name, func(t *testing.T) {
				t.Parallel()
				l := newLot(t, w.config)
				ends := r.name == "timeout" || r.name == "Close" // the lot sets the deadline, or closes the connection
				outcomes := make(chan conntest.Outcome, 10)
				p := w.park(t, l, r.o, func(conn net.Conn) {
					if !ends {
						conn.SetReadDeadline(time.Now().Add(time.Millisecond))
					}
					buf := make([]byte, 10)
					n, err := conn.Read(buf)
					outcomes <- conntest.Outcome{Text: string(buf[:n]), Err: err, Conn: conn}
				})
				if !w.atOnce && r.o == (Options{}) {
					check.Empty(t, outcomes)
				}
				r.give(t, l, w, p)
				if p.release != nil {
					p.release()
				}
				if p.header != "" && !ends {
					conntest.Send(t, p.client, p.header)
				}
				o := await.Value(t, outcomes)
				if read := o.Text == "x" && o.Err == nil; !(w.atOnce && read) && !(errors.Is(o.Err, r.want) && (ends || !w.atOnce)) {
					t.Errorf("%+v, want %v", o, r.want)
				}
				if p.end != nil {
					p.end()
				}
				check.OK(t, l.Shutdown(t.Context()))
				check.Empty(t, outcomes)
			})
		}
	}
}

// A timeout that has passed ends no later parking of the same connection.
func TestExpireDuringPark(t *testing.T) {
	l := newLot(t, Config{})
	conn, _ := conntest.Pair(t, "tcp")
	stop := make(chan bool)
	var expiring sync.WaitGroup
	defer expiring.Wait()
	defer close(stop)
	check.OK(t, l.Park(conn, func(net.Conn) {}))
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
	await.Until(t, "the function has run", func() bool { return l.Counts().Running+l.Counts().Parked == 0 })
	for range 25 {
		again, early := make(chan error, 1), make(chan bool, 1)
		check.OK(t, l.ParkWith(conn, Options{IdleTimeout: 1}, func(c net.Conn) {
			n := l.Counts().Expired
			again <- l.ParkWith(c, Options{IdleTimeout: time.Hour}, func(net.Conn) { early <- l.Counts().Expired != n })
		}))
		check.OK(t, await.Value(t, again))
		await.Pause(20 * time.Microsecond) // for the other goroutines to find it expired, if they can
		l.Wake(conn)
		if await.Value(t, early) {
			t.Fatal("a timeout of an hour has passed")
		}
	}
}
