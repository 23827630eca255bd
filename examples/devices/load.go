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
	failed, connected := make(chan error, n), make(chan struct{}, n)
	for i := range n {
		cert, err := selfcert.Issue(authority, 24*time.Hour, nameOf(i))
		if err != nil {
			return err
		}
		config := &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: trust, ServerName: "localhost"}
		go func() {
			c, err := connectAgain(ctx, addr, config)
			if err == nil {
				connected <- struct{}{}
				err = simulate(ctx, c)
			}
			failed <- err
		}()
	}
	for range n {
		select {
		case <-connected:
		case err := <-failed:
			return err
		}
	}
	log.Printf("%d devices connected in %v", n, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	before := f.messages.Load()
	for i := range n {
		for f.push(nameOf(i), []byte("report")) == errUnknown { // its handshake has ended for the device alone
			if err := sleep(ctx, time.Millisecond); err != nil {
				return err
			}
		}
	}
	for f.messages.Load() < before+uint64(n) {
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	log.Printf("%d commands answered in %v", n, time.Since(began).Round(time.Millisecond))
	return nil
}

func nameOf(i int) string { return fmt.Sprintf("device-%06d", i) }

// connectAgain connects, and after a failure again: each time after twice as long, and not all devices at once.
func connectAgain(ctx context.Context, addr string, config *tls.Config) (*tls.Conn, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, time.Minute) {
		d := tls.Dialer{Config: config}
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return c.(*tls.Conn), nil
		}
		if err := sleep(ctx, wait/2+rand.N(wait)); err != nil {
			return nil, err
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

// simulate is a device: it answers each command with a message, and sends heartbeats.
func simulate(ctx context.Context, c *tls.Conn) error {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	go func() {
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if _, err := c.Write(frameOf('p', nil)); err != nil {
				return
			}
		}
	}()
	in := bufio.NewReaderSize(c, 256)
	for {
		kind, rest, err := readFrame(in)
		if err != nil {
			return err
		}
		if kind == 'c' {
			if _, err := c.Write(frameOf('m', rest)); err != nil {
				return err
			}
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
