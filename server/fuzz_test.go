package server_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// Datagrams of two peers, with contents and lengths from the fuzzer, come back unchanged, or cut to MaxMessage.
func FuzzDatagrams(f *testing.F) {
	backendtest.Need(f)
	f.Add([]byte("\x00\x01a\x05hello\xff"), uint8(1))
	f.Add([]byte{0, 0, 0, 0}, uint8(4))
	f.Add(bytes.Repeat([]byte{0xff}, 3000), uint8(100))
	f.Add(bytes.Repeat([]byte{1}, 3000), uint8(255))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		maxSize := max(int(size), 1)
		s := &server.PacketServer{MaxMessage: maxSize, Workers: 2, Handler: packetFunc(func(c *server.PacketConn, in []sock.Message) {
			for i := range in {
				if in[i].N != len(in[i].Buf) || in[i].N > maxSize || !in[i].Addr.IsValid() {
					t.Errorf("%+v", in[i])
				}
			}
			c.Send(in)
		})}
		first := packets(t, s)
		clients := []net.Conn{first, dialPacket(t, first.RemoteAddr())}
		for len(data) > 0 {
			var sent [][]byte
			for ; len(data) > 0 && len(sent) < 20; data = data[len(sent[len(sent)-1]):] { // no more than there is room for
				n := int(data[0])
				data = data[1:]
				one := data[:min(n, len(data))]
				if _, err := clients[len(sent)%2].Write(one); err != nil {
					t.Fatal(err)
				}
				sent = append(sent, one)
			}
			buf := make([]byte, 1000)
			for i, want := range sent {
				want = want[:min(len(want), maxSize)]
				if n, err := clients[i%2].Read(buf); err != nil || !bytes.Equal(buf[:n], want) {
					t.Fatalf("datagram %d: %q, %v; want %q", i, buf[:n], err, want)
				}
			}
		}
	})
}

// The bytes of a client decide what the handler does with its connection: echo them, hijack it with or without queued
// bytes, or pause it, and resume. All bytes come back in order.
func FuzzHijack(f *testing.F) {
	backendtest.Need(f)
	for _, script := range []string{
		"", "echo", "h3abcd", "h0h1xq", "p5hello", "q2ab rest", "hqhqhq", "pppp", "h9short", "h2xxp2yyq2zz...", "eh1ae", "c", "ah3bcdc rest",
		"q9q9q9q9 no end",
	} {
		for cut := range uint8(3) {
			f.Add([]byte(script), cut, false)
			f.Add([]byte(script), cut, true)
		}
	}
	config, client := certified(f)
	f.Fuzz(func(t *testing.T, script []byte, cut uint8, secure bool) {
		noHijack(t)
		script = script[:min(len(script), 1000)]
		const block = 64 << 10
		var helpers sync.WaitGroup
		h := &handler{t: t}
		h.data = func(c conn, buf []byte) error {
			n, err := c.Read(buf[:1]) // a word of the script at a time
			if err == io.EOF {
				return err
			} else if err != nil || n == 0 {
				return nil
			}
			if _, err := c.Write(buf[:1]); err != nil {
				return err
			}
			switch buf[0] {
			case 'p':
				c.Pause()
				helpers.Go(func() { c.Resume() })
			case 'q', 'h':
				if buf[0] == 'q' { // as much as is not sent at once
					c.Write(bytes.Repeat([]byte{'='}, block))
				}
				nc, err := c.Hijack()
				if err != nil {
					return err
				}
				helpers.Go(func() {
					var b [10]byte
					if _, err := io.ReadFull(nc, b[:1]); err == nil {
						n, _ := io.ReadFull(nc, b[1:1+b[0]%10])
						nc.Write(b[:1+n])
					}
					if err := c.Resume(); err != nil && !errors.Is(err, net.ErrClosed) {
						t.Errorf("Resume = %v", err)
					}
				})
			}
			return nil
		}
		s := &srv{Handler: h, Workers: 2, MaxQueued: 4 * block, TLSConfig: config}
		l := listen(t)
		serve := s.Serve
		if secure {
			serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
		}
		served(t, s, func() error { return serve(l) })
		below := dial(t, l.Addr().String())
		var c interface {
			net.Conn
			CloseWrite() error
		} = below
		if secure {
			c = tls.Client(below, client)
		}
		sent := make(chan error, 1)
		go func() {
			rest := script
			for len(rest) > 0 {
				k := min(len(rest), int(cut)+1)
				if _, err := c.Write(rest[:k]); err != nil {
					sent <- err
					return
				}
				rest = rest[k:]
			}
			if secure && len(script) == 0 {
				c.(*tls.Conn).Handshake() // or there is nothing to close
			}
			sent <- c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
		must(t, <-sent)
		plain := make([]byte, 0, len(script))
		for len(got) > 0 {
			plain = append(plain, got[0])
			q := got[0] == 'q'
			got = got[1:]
			if q && len(got) >= block && len(bytes.TrimLeft(got[:block], "=")) == 0 {
				got = got[block:]
			}
		}
		if !bytes.Equal(plain, script) {
			t.Fatalf("%q comes back as %q", script, plain)
		}
		h.wantCause(1, nil)
		helpers.Wait() // the handler starts no more after Close
	})
}
