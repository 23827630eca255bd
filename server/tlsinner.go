package server

import (
	"net"
	"time"
)

// A tlsInner is the net.Conn of crypto/tls.
type tlsInner tlsConn

// errAgain says that nothing has come. As it is temporary, crypto/tls goes on after it: what it has of a
// record, or of a message of the handshake protocol, it keeps.
var errAgain error = againError{}

type againError struct{}

func (againError) Error() string   { return "server: nothing has come" }
func (againError) Timeout() bool   { return true }
func (againError) Temporary() bool { return true }

func (i *tlsInner) Read(p []byte) (int, error) {
	t := (*tlsConn)(i)
	for {
		n, err := t.readRecord(p)
		if err != errAgain || t.hs == nil {
			return n, err
		}
		if err := t.waitForPeer(); err != nil {
			return 0, err
		}
	}
}

// Write keeps what is to be sent until whoever called crypto/tls pushes it.
func (i *tlsInner) Write(p []byte) (int, error) {
	t := (*tlsConn)(i)
	if t.nc != nil {
		return t.nc.Write(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out == nil {
		t.outs = t.conn.server().tlsBuffers.Get().(*tlsBuffer)
		t.out = t.outs[:0]
	}
	t.out = append(t.out, p...)
	return len(p), nil
}

// Close is a hijacker's: crypto/tls has sent its close_notify. One of a handshake is because of an end that
// is known already.
func (i *tlsInner) Close() error {
	if i.hs != nil {
		return nil
	}
	return i.conn.Close()
}

func (i *tlsInner) LocalAddr() net.Addr  { return i.conn.LocalAddr() }
func (i *tlsInner) RemoteAddr() net.Addr { return i.conn.RemoteAddr() }

// Deadlines are a hijacker's, too.

func (i *tlsInner) SetDeadline(at time.Time) error {
	if i.nc == nil {
		return nil
	}
	return i.nc.SetDeadline(at)
}

func (i *tlsInner) SetReadDeadline(at time.Time) error {
	if i.nc == nil {
		return nil
	}
	return i.nc.SetReadDeadline(at)
}

func (i *tlsInner) SetWriteDeadline(at time.Time) error {
	if i.nc == nil {
		return nil
	}
	return i.nc.SetWriteDeadline(at)
}
