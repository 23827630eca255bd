// Command devices is a server of devices that hold a connection, such as meters or chargers. Each shows a certificate,
// whose name is the device's. Commands are pushed to it from any goroutine, and it sends messages at any time.
//
// A frame is its length in two bytes, big-endian, a kind, and the rest of that length:
//
//	p  a heartbeat, from both sides
//	m  a message of a device
//	c  a command, which the device answers with a message
//
// A device that sends nothing for 90 s is closed, although the server writes to it; one that sends more than 20 messages
// in a second is closed, too. After a restart all come back at once: AcceptRate and MaxHandshakes bound what that
// costs, and devices wait longer after each attempt (see stay in load.go).
//
//	devices -load 5000    connects as many devices to it, from the same process, and sends each a command
//
// It stands on package server, which has the listener, TLS, timeouts and limits.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"flag"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/server"
)

const (
	maxFrame = 4096
	perSec   = 20
	beat     = 30 * time.Second
	parts    = 30 // of the fleet, which get their heartbeats one after the other
)

// A device is the state of a connection.
type device struct {
	name   string
	part   int   // never changes after Open
	second int64 // of the latest message
	count  int   // of messages in it
}

type conn = *server.Conn[device]

var (
	errTooMany = errors.New("more messages than a device may send")
	errFrame   = errors.New("no frame of this protocol")
	errUnknown = errors.New("no such device")
)

// A fleet is the handler, and the registry of the devices that are connected.
type fleet struct {
	mu       sync.RWMutex
	devices  map[string]conn
	messages atomic.Uint64
}

// Open is called after the handshake, which has verified the certificate.
func (f *fleet) Open(c conn) error {
	c.Value.name = c.TLS().PeerCertificates[0].Subject.CommonName
	c.DropCertificates() // 3 KB for each device
	c.Value.part = rand.IntN(parts)
	f.mu.Lock()
	old := f.devices[c.Value.name]
	f.devices[c.Value.name] = c
	f.mu.Unlock()
	if old != nil {
		old.Abort() // what is left of it after a lost network
	}
	return nil
}

func (f *fleet) Data(c conn, buf []byte) error {
	for {
		head, err := c.Peek(2)
		if err != nil {
			return err // sock.ErrWouldBlock: the rest will come
		}
		size := int(binary.BigEndian.Uint16(head))
		if size == 0 || size > maxFrame {
			return errFrame
		}
		frame, err := c.Next(2 + size)
		if err != nil {
			return err
		}
		switch frame[2] {
		case 'p': // that it has arrived is all
		case 'm':
			if now := time.Now().Unix(); now != c.Value.second {
				c.Value.second, c.Value.count = now, 0
			}
			if c.Value.count++; c.Value.count > perSec {
				return errTooMany
			}
			f.messages.Add(1) // frame[3:] is the message
		default:
			return errFrame
		}
	}
}

func (f *fleet) Close(c conn, cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.devices[c.Value.name] == c { // and not the one that has replaced it
		delete(f.devices, c.Value.name)
	}
}

// push sends a command to a device, from any goroutine, and does not wait. A device that does not read what was pushed
// is closed by WriteTimeout; until then server.ErrQueueFull says that the command was not taken.
func (f *fleet) push(name string, command []byte) error {
	f.mu.RLock()
	c := f.devices[name]
	f.mu.RUnlock()
	if c == nil {
		return errUnknown
	}
	_, err := c.Write(frameOf('c', command))
	return err
}

// connected returns the number of devices in the registry.
func (f *fleet) connected() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.devices)
}

// part returns a part of the connections, so that nothing is sent under the lock.
func (f *fleet) part(n int) (conns []conn) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, c := range f.devices {
		if c.Value.part == n {
			conns = append(conns, c)
		}
	}
	return conns
}

// heartbeats sends one to each device every beat, to a part of them each second, until the context is done.
func (f *fleet) heartbeats(ctx context.Context) {
	ping := frameOf('p', nil)
	ticker := time.NewTicker(beat / parts)
	defer ticker.Stop()
	for n := 0; ; n = (n + 1) % parts {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		for _, c := range f.part(n) {
			c.Write(ping) // an error means that the connection ends, or that it has more queued than this
		}
	}
}

// frameOf returns a frame.
func frameOf(kind byte, rest []byte) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 3+len(rest)), uint16(1+len(rest)))
	return append(append(b, kind), rest...)
}

// serverOf returns the server of a fleet.
func serverOf(f *fleet, cert tls.Certificate, authority *x509.CertPool, backend string) *server.Server[device] {
	return &server.Server[device]{
		Handler: f, Backend: backend, Name: "devices", MaxMessage: 2 + maxFrame,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13,
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority},
		IdleTimeout: 3 * beat, SilentIsIdle: true, // what the server sends does not count
		AcceptRate: server.Rate{PerSecond: 500, Burst: 1000}, // of a reconnect storm; others try again
		MaxQueued:  64 << 10,                                 // for each device
	}
}

// serve serves until the context is done, and then ends the connections.
func serve(ctx context.Context, s *server.Server[device], l net.Listener, f *fleet) error {
	beats, stop := context.WithCancel(ctx)
	defer stop()
	go f.heartbeats(beats)
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		stopped <- s.Shutdown(limit)
	})
	if err := s.ServeTLS(l, "", ""); err != server.ErrServerClosed {
		return err
	}
	return <-stopped
}

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "address to listen on")
	n := flag.Int("load", 0, "`number` of devices to connect")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, *n); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string, n int) error {
	// One certificate is the server's and that of the authority of the devices. A real fleet has two.
	cert, trust, err := selfcert.New(365*24*time.Hour, "localhost", "127.0.0.1")
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Println("listening on", l.Addr())
	f := &fleet{devices: map[string]conn{}}
	s := serverOf(f, cert, trust, "")
	if n > 0 {
		go func() {
			if err := load(ctx, f, l.Addr().String(), cert, trust, n); err != nil {
				log.Print(err)
			}
			log.Println(s.Stats().Refused, "connections refused by AcceptRate")
		}()
	}
	return serve(ctx, s, l, f)
}
