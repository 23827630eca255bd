package server_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
)

// More connections than a burst are refused and counted, and more are accepted later.
func TestAcceptRate(t *testing.T) {
	t.Parallel() // it waits
	for name, set := range map[string]func(s *srv, r server.Rate){
		"all":  func(s *srv, r server.Rate) { s.AcceptRate = r },
		"addr": func(s *srv, r server.Rate) { s.AcceptRatePerAddr = r },
	} {
		t.Run(name, func(t *testing.T) {
			s := &srv{Handler: &handler{t: t}}
			const perSecond, burst = 5, 5
			set(s, server.Rate{PerSecond: perSecond, Burst: burst})
			addr := start(t, s)
			begin := time.Now()
			n := uint64(0)
			for ; s.Stats().Refused == 0; n++ {
				dial(t, addr).Close()
				wait(t, func() bool { st := s.Stats(); return st.Accepted+st.Refused == n+1 })
			}
			most := burst + uint64(perSecond*time.Since(begin)/time.Second) + 1
			if accepted := s.Stats().Accepted; accepted < burst || accepted > most {
				t.Errorf("%d accepted, want %d to %d", accepted, burst, most)
			}
			wait(t, func() bool { return s.Stats().Conns == 0 }) // the server's own clock stands still
			accepted := s.Stats().Accepted
			wait(t, func() bool {
				dial(t, addr).Close()
				await.Pause(50 * time.Millisecond)
				return s.Stats().Accepted > accepted
			})
		})
	}
}

// A connection that sends as fast as it can is received from at ReadRate, after a burst; another is not affected. The
// server does not call Data again and again.
func TestReadRate(t *testing.T) {
	t.Parallel() // it waits
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		const rate, burst = 100_000, 20_000
		const oneTick = rate / 20 // which may end as soon as the burst is over
		var got, calls atomic.Int64
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			calls.Add(1)
			if b, err := c.Peek(10_000); err == nil && got.Load()%20_000 == 0 { // by the input and by Read
				c.Discard(10_000)
				got.Add(int64(len(b)))
				return nil
			}
			n, err := c.Read(buf)
			got.Add(int64(n))
			return err
		}}
		s := &srv{Handler: h, Backend: backend, ReadRate: server.Rate{PerSecond: rate, Burst: burst}, ReadTimeout: time.Hour}
		c := connect(s)
		begin := time.Now()
		total := int64(burst + rate/2)
		if _, err := c.Write(make([]byte, total)); err != nil {
			t.Fatal(err)
		}
		wait(t, func() bool {
			n := got.Load()
			if most := burst + int64(time.Since(begin).Seconds()*rate) + oneTick; n > most { // the clock is read after n
				t.Fatalf("%d bytes received, want at most %d", n, most)
			}
			return n >= total
		})
		if n := calls.Load(); n > 2000 {
			t.Errorf("%d calls of Data", n)
		}
	})
}

// Answers are sent at WriteRate, after a burst, from the queue, from readers and from files. WriteTimeout does not apply to
// the waits, and Close sends the rest.
func TestWriteRate(t *testing.T) {
	t.Parallel() // it waits
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		const rate, burst, size = 100_000, 20_000, 30_000
		const oneTick = rate / 20
		h := &handler{t: t, open: func(c conn) error {
			_, err := c.Write(stream(1, 0, size))
			return errors.Join(err, c.Stream(&supplier{id: 2, size: size}), c.SendFile(fileWith(t, 3, size), 0, -1), c.Close())
		}}
		s := &srv{Handler: h, Backend: backend, WriteRate: server.Rate{PerSecond: rate, Burst: burst}, WriteTimeout: time.Second}
		begin := time.Now() // before the connection, and so before its first byte
		c := connect(s)
		for i := range 3 {
			expectStream(t, c, uint64(i+1), size)
			if n, most := size*(i+1), burst+int(time.Since(begin).Seconds()*rate)+oneTick; n > most {
				t.Errorf("%d bytes sent, want at most %d", n, most)
			}
		}
		expectEnd(t, c, io.EOF)
	})
}

// A rate does not change what is received and sent, in small pieces and with both limits.
func TestRatesEcho(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		s := &srv{Handler: &handler{t: t}, Backend: backend, ReadRate: server.Rate{PerSecond: 200_000, Burst: 5000},
			WriteRate: server.Rate{PerSecond: 300_000, Burst: 3000}}
		c := connect(s)
		go c.Write(stream(1, 0, 20_000))
		expectStream(t, c, 1, 20_000)
	})
}

func TestInvalidRates(t *testing.T) {
	for want, s := range map[string]*srv{
		"AcceptRate.Burst":        {AcceptRate: server.Rate{PerSecond: -1, Burst: 1}},
		"AcceptRatePerAddr.Burst": {AcceptRatePerAddr: server.Rate{Burst: 1}},
		"ReadRate.Burst":          {ReadRate: server.Rate{PerSecond: 1, Burst: -5}},
		"WriteRate.Burst":         {WriteRate: server.Rate{PerSecond: 1, Burst: -1}},
	} {
		s.Handler = &handler{t: t}
		err := s.ListenAndServe("tcp", "127.0.0.1:0")
		if !errors.Is(err, socknotify.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error about %s", err, want)
		}
	}
}

// A TLS handshake that waits for its rates is not taken for one that takes too long.
func TestRatesOfHandshake(t *testing.T) {
	t.Parallel() // it waits
	backendtest.Each(t, func(t *testing.T, backend string) {
		slow := server.Rate{PerSecond: 4000, Burst: 400}
		s := &srv{Handler: &handler{t: t}, Backend: backend, ReadRate: slow, WriteRate: slow, HandshakeTimeout: time.Minute}
		addr, client := startTLS(t, s)
		c := dialTLS(t, addr, client)
		echoes(t, c, "hello")
	})
}
