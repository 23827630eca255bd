package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
)

// load connects n devices at once, as after a restart, and pushes a command to each. The devices stay until the context
// is done.
func load(ctx context.Context, f *fleet, addr string, authority tls.Certificate, trust *x509.CertPool, n int) error {
	began := time.Now()
	for i := range n {
		cert, err := selfcert.Issue(authority, 24*time.Hour, nameOf(i))
		if err != nil {
			return err
		}
		config := &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: trust, ServerName: "localhost"}
		go stay(ctx, addr, config)
	}
	err := wait(ctx, "devices connected", n, f.connected)
	if err != nil {
		return err
	}
	log.Printf("%d devices connected in %v", n, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	before := f.messages.Load()
	for i := range n {
		for f.push(nameOf(i), []byte("report")) == errUnknown { // it has lost its connection, and comes back
			if err := sleep(ctx, time.Millisecond); err != nil {
				return err
			}
		}
	}
	err = wait(ctx, "commands answered", n, func() int { return int(f.messages.Load() - before) })
	if err != nil {
		return err
	}
	log.Printf("%d commands answered in %v", n, time.Since(began).Round(time.Millisecond))
	return nil
}

// wait waits until there are n, and logs how many there are every five seconds.
func wait(ctx context.Context, what string, n int, count func() int) error {
	for next := time.Now().Add(5 * time.Second); ; {
		now := count()
		if now >= n {
			return nil
		}
		if time.Now().After(next) {
			log.Printf("%d of %d %s", now, n, what)
			next = next.Add(5 * time.Second)
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

func nameOf(i int) string { return fmt.Sprintf("device-%06d", i) }

// stay connects a device, and again when that fails or the connection is lost: after twice as long each time, and not
// all devices at once. In TLS 1.3 the handshake ends for the device before the server has verified its certificate. So
// that Dial returns does not mean that the server will serve it, and only a connection that has lasted begins the times
// again.
func stay(ctx context.Context, addr string, config *tls.Config) {
	const first = 100 * time.Millisecond
	for pause := first; ; pause = min(2*pause, time.Minute) {
		d := tls.Dialer{Config: config}
		if c, err := d.DialContext(ctx, "tcp", addr); err == nil {
			began := time.Now()
			simulate(ctx, c.(*tls.Conn))
			if time.Since(began) > beat {
				pause = first
			}
		}
		if sleep(ctx, pause/2+rand.N(pause)) != nil {
			return
		}
	}
}

// sleep returns the error of the context if that is done first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// simulate is a device: it answers each command with a message, and sends heartbeats, until the connection is lost or
// the context is done.
func simulate(ctx context.Context, c *tls.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { c.Close() })
	go func() {
		for sleep(ctx, beat) == nil {
			c.Write(frameOf('p', nil))
		}
	}()
	in := bufio.NewReaderSize(c, 256)
	for {
		kind, rest, err := readFrame(in)
		if err == nil && kind == 'c' {
			_, err = c.Write(frameOf('m', rest))
		}
		if err != nil {
			return
		}
	}
}

func readFrame(r io.Reader) (kind byte, rest []byte, err error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	rest = make([]byte, max(int(binary.BigEndian.Uint16(head[:])), 1)-1)
	_, err = io.ReadFull(r, rest)
	return head[2], rest, err
}
