package server

import (
	"net"
	"time"
)

// A tlsInner is the net.Conn that crypto/tls reads and writes.
type tlsInner tlsConn

// errAgain is returned to crypto/tls when nothing has arrived. Because it is temporary, crypto/tls can go on after it, and
// keeps what it has of a record or of a handshake message.
var errAgain error = againError{}

type againError struct{}

func (againError) Error() string   { return "server: nothing has arrived" }
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

// Write appends to out, which is sent by push when crypto/tls has returned.
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

// Close is called when a hijacker closes the connection, after crypto/tls has sent its close_notify. During a handshake
// crypto/tls calls it after an error, which the caller of the handshake handles.
func (i *tlsInner) Close() error {
	if i.hs != nil {
		return nil
	}
	return i.conn.Close()
}

func (i *tlsInner) LocalAddr() net.Addr  { return i.conn.LocalAddr() }
func (i *tlsInner) RemoteAddr() net.Addr { return i.conn.RemoteAddr() }

// Deadlines are set by a hijacker alone.

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
