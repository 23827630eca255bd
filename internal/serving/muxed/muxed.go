// Package muxed is how a server of a protocol that has many streams on a connection, such as
// park/http2, lends one of them to package park, without an import of one by the other.
package muxed

import (
	"net"
	"net/http"
)

// A Writer is an http.ResponseWriter whose stream can be taken over.
type Writer interface {
	// TakeStream sends the header, and makes the rest of the response that of the Stream, and for
	// a CONNECT request also what the client sends. The handler must return, and use the Writer no
	// more. w is called when the stream has ended, when there is something to read, and when the
	// stream takes more after a Write that it has not taken whole. TakeStream fails with
	// http.ErrNotSupported, and has done nothing then, if the response cannot be taken over, for
	// example because another request than CONNECT is not received whole.
	//
	// With tunnel, the request must be CONNECT, and the stream stands for a connection: io.EOF means
	// that the client has ended its side, and any other end of the stream is an error.
	TakeStream(w Waker, tunnel bool) (Stream, error)
}

// A Suspender is an http.ResponseWriter whose request can wait without a goroutine.
type Suspender interface {
	// SuspendStream makes the handler's return not end the response. w is called when the stream has
	// ended. SuspendStream fails with http.ErrHijacked if the stream was taken over or suspended
	// before, and with http.ErrNotSupported if it cannot wait, for example because the header was
	// sent.
	SuspendStream(w Waker) (Suspended, error)
}

// A Suspended is a stream whose request waits.
type Suspended interface {
	// Resume ends the wait. When the handler has returned, serve is called as a handler, also if the
	// stream has ended. If the handler has panicked, drop is called instead. Resume does not wait
	// for them, and must be called once.
	Resume(serve func(http.ResponseWriter, *http.Request), drop func())
	// Err is as in Stream.
	Err() error
}

// A Waker is notified of a change. Wake must not wait, and not call the Stream.
type Waker interface{ Wake() }

// A Stream is a response that needs no goroutine. No method waits. They may be called concurrently.
type Stream interface {
	// Read returns what was received, which may be nothing, and is all if it is less than b can
	// have. It fails with io.EOF, also with the last bytes, when the client sends no more, and with
	// the error of Err when the stream has ended otherwise. If the request was not CONNECT it
	// returns the error of Err alone.
	Read(b []byte) (n int, err error)
	// Write sends what the windows of the client permit, and returns how many bytes that are. If
	// these are not all, the Waker is called when there may be room for more. Write takes nothing
	// when the stream has ended.
	Write(b []byte) (n int)
	// Err returns nil as long as the stream is open, io.EOF if the client has ended it, and
	// otherwise the reason. For a tunnel it returns nil also if both sides have ended the stream, and
	// the reason also if the client has reset it.
	Err() error
	// CloseWrite ends the response. Close does too, and discards what was received and is received.
	// Reset ends the response as one that is not whole, and the stream of a tunnel as one whose
	// other connection has failed. None sends anything when the stream has ended.
	CloseWrite()
	Close()
	Reset()
	// NetConn returns the connection, for its addresses.
	NetConn() net.Conn
}
