package debug_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/socknotify/socknotify/tunnel"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/server"
)

type echo struct{}

func (echo) Open(*server.Conn[struct{}]) error   { return nil }
func (echo) Close(*server.Conn[struct{}], error) {}
func (echo) Data(c *server.Conn[struct{}], buf []byte) error {
	n, err := c.Read(buf)
	if err == nil {
		_, err = c.Write(buf[:n])
	}
	return err
}

// eventually waits until a condition holds.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	await.Until(t, "a condition", condition)
}

// say dials, sends a word and receives it back.
func say(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.Write([]byte("hello"))
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	return c
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start serves until end is called.
func start(t *testing.T, s *server.Server[struct{}]) (addr net.Addr, end func()) {
	t.Helper()
	l := listen(t)
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	return l.Addr(), func() {
		s.Close()
		<-served
		s.Shutdown(context.Background())
	}
}

// A page that was made before Serve shows the server's counts, and its ports when they are there. Keys are addresses.
func TestServer(t *testing.T) {
	t.Parallel() // it waits
	s := &server.Server[struct{}]{Handler: echo{}, TimeCalls: true, Workers: 2, Shards: 2}
	_, url := serve(t, debug.Server("shop", s))
	if l := get[debugdata.Servers](t, url+"servers", 200); len(l.Servers) != 1 || l.Servers[0].Kind != "server.Server" || len(l.Servers[0].Ports) != 0 {
		t.Errorf("before Serve: %+v", l)
	}
	if v := get[debugdata.ServerView](t, url+"server", 200); v.Counts.Conns != 0 || len(v.Samples) == 0 || v.Observed.IsZero() {
		t.Errorf("before Serve: %+v", v)
	}
	addr, end := start(t, s)
	c := say(t, addr)
	if p := get[debugdata.Servers](t, url+"servers", 200).Servers[0].Ports; len(p) != 2 || p[0] != "shop-0" || p[1] != "shop-1" {
		t.Errorf("ports %q", p)
	}
	eventually(t, func() bool {
		v := get[debugdata.ServerView](t, url+"server?server=shop", 200)
		return v.Counts.Conns == 1 && v.Counts.BytesIn == 5 && v.Counts.BytesOut == 5 && v.Counts.Calls == 1 && v.Counts.Accepted == 1 &&
			v.Counts.CallTime != nil && v.Counts.CallTime.Seconds > 0
	})
	found := false
	for _, port := range []string{"shop-0", "shop-1"} {
		for _, row := range get[debugdata.Registrations](t, url+"registrations?sort=key&port="+port, 200).Rows {
			found = found || row.Key == c.LocalAddr().String()
		}
		for _, row := range get[debugdata.Registrations](t, url+"registrations?q="+c.LocalAddr().String()+"&port="+port, 200).Rows {
			if row.Key != row.Remote {
				t.Errorf("%+v", row)
			}
		}
	}
	if !found {
		t.Error("no key is the address of the peer")
	}
	from := get[debugdata.ServerView](t, url+"server", 200).Samples
	last := from[len(from)-1]
	eventually(t, func() bool { // the next sample has the counts
		v := get[debugdata.ServerView](t, url+"server?after="+strconv.FormatUint(last.Number, 10), 200)
		return len(v.Samples) > 0 && v.Samples[0].Number == last.Number+1 && v.Samples[0].Calls >= 1
	})
	end()
	if v := get[debugdata.ServerView](t, url+"server", 200); v.Counts.BytesIn != 5 {
		t.Errorf("after the end: %+v", v.Counts)
	}
	get[debugdata.Failure](t, url+"server?server=other", 404)
	get[debugdata.Failure](t, url+"server?after=x", 400)
}

// A port that is found when samples are taken is not sampled twice at that time: the page divides by the time between two.
func TestFoundPortIsSampledOnce(t *testing.T) {
	t.Parallel() // it waits
	s := &server.Server[struct{}]{Handler: echo{}, Shards: 1}
	_, url := serve(t, debug.Server("shop", s))
	_, end := start(t, s)
	eventually(t, func() bool { // without a request, which would find the port
		ports := s.Ports()
		return len(ports) == 1 && !debug.TakeSnapshot(ports[0], 0, 0).Observed.IsZero()
	})
	var samples []debugdata.Sample
	eventually(t, func() bool {
		samples = get[debugdata.History](t, url+"history?port=shop", 200).Samples
		return len(samples) >= 2
	})
	if d := samples[1].Time.Sub(samples[0].Time); d < 500*time.Millisecond {
		t.Errorf("samples %v apart; want a second", d)
	}
	end()
}

// Parked servers and lots are shown as well, and a lot whose Serve has returned is not.
func TestParkServers(t *testing.T) {
	lines := &park.Server{Handler: func(c net.Conn) error {
		var b [5]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return err
		}
		_, err := c.Write(b[:])
		return err
	}}
	web := &park.HTTPServer{Linger: -1, TimeCalls: true, Server: &http.Server{Handler: http.NotFoundHandler()}}
	lot, err := park.New(park.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer lot.Close()
	_, url := serve(t, debug.ParkServer("lines", lines), debug.HTTPServer("web", web), debug.Lot("lot", lot))
	one, two := listen(t), listen(t)
	served := make(chan error, 2)
	go func() { served <- lines.Serve(one) }()
	go func() { served <- web.Serve(two) }()
	say(t, one.Addr())
	client := &http.Client{Transport: &http.Transport{}}
	r, err := client.Get("http://" + two.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	eventually(t, func() bool {
		l := get[debugdata.ServerView](t, url+"server?server=lines", 200).Counts
		w := get[debugdata.ServerView](t, url+"server?server=web", 200).Counts
		return l.Calls == 1 && l.Conns == 1 && l.Parked == 1 && w.Calls == 1 && w.Parked == 1 && w.CallTime != nil &&
			w.Conns == 1 && w.Accepted == 1
	})
	get[debugdata.Failure](t, url+"server", 400)
	for _, s := range get[debugdata.Servers](t, url+"servers", 200).Servers {
		if len(s.Ports) != 1 || s.Ports[0] != s.Name {
			t.Errorf("%+v", s)
		}
	}
	eventually(t, func() bool { // a connection counts as parked before it is registered
		rows := get[debugdata.Registrations](t, url+"registrations?port=web", 200).Rows
		return len(rows) == 1 && rows[0].Key == rows[0].Remote
	})
	client.CloseIdleConnections()
	web.Shutdown(context.Background())
	lines.Close()
	<-served
	<-served
	lines.Shutdown(context.Background())
	for _, s := range get[debugdata.Servers](t, url+"servers", 200).Servers {
		if s.Name == "web" && len(s.Ports) != 0 {
			t.Errorf("after the end: %+v", s)
		}
	}
	if c := get[debugdata.ServerView](t, url+"server?server=web", 200).Counts; c.Calls != 1 || c.Conns != 0 || c.Accepted != 1 {
		t.Errorf("after the end: %+v", c)
	}
}

func TestReady(t *testing.T) {
	s := &server.Server[struct{}]{Handler: echo{}}
	check := debug.Ready(s)
	status := func() int {
		r := httptest.NewRequest("GET", "/readyz", nil)
		r.RemoteAddr = "192.0.2.1:1000" // the kubelet is another machine
		return answer(check, r).Code
	}
	if status() != 503 {
		t.Error("ready before Serve")
	}
	_, end := start(t, s)
	eventually(t, func() bool { return status() == 200 })
	s.Close()
	if status() != 503 {
		t.Error("ready after Close")
	}
	end()
	w := answer(debug.Ready(new(park.Server), new(park.HTTPServer)), httptest.NewRequest("GET", "/readyz", nil))
	if w.Code != 503 || w.Body.String() != "not ready\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// Tunnels are shown with what they have moved.
func TestTunnels(t *testing.T) {
	tunnels := new(tunnel.Tunnels)
	defer tunnels.Close()
	_, url := serve(t, debug.Tunnels("tunnels", tunnels))
	var ends [4]net.Conn
	for i := range 2 {
		l := listen(t)
		near, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ends[2*i], ends[2*i+1] = near, far
	}
	must(t, tunnels.Join(ends[1], ends[3]))
	io.WriteString(ends[0], "hello")
	if _, err := io.ReadFull(ends[2], make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		c := get[debugdata.ServerView](t, url+"server", 200).Counts
		return c.Conns == 1 && c.Parked == 2 && c.BytesIn == 5 && c.BytesOut == 0
	})
}
