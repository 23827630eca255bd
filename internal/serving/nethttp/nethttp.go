// Package nethttp takes the connections of requests over from servers of package net/http, and looks
// at what net/http does not export. If a Go release renames a field, a request is served without it.
package nethttp

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"

	"github.com/socknotify/socknotify/internal/serving/muxed"
)

// ErrBodyUnread is that of package park.
var ErrBodyUnread = errors.New("park: the body of the request was not read to its end")

// Hijack calls the Hijack method of a response, and also returns what was received after the request.
func Hijack(w http.ResponseWriter) (conn net.Conn, rw *bufio.ReadWriter, early []byte, err error) {
	conn, rw, err = http.NewResponseController(w).Hijack()
	if err == nil && rw != nil {
		b, _ := rw.Reader.Peek(rw.Reader.Buffered())
		early = slices.Clone(b)
	}
	return conn, rw, early, err
}

// TakeOver is Hijack for a connection that needs no session of an HTTPServer any more. It fails with
// ErrBodyUnread, and has done nothing then, if what was received may begin with a body.
func TakeOver(w http.ResponseWriter) (conn net.Conn, early []byte, err error) {
	if hasBodyLeft(Innermost(w)) {
		return nil, nil, ErrBodyUnread
	}
	conn, _, early, err = Hijack(w)
	if err == nil {
		conn, early = Detach(conn, early)
	}
	return conn, early, err
}

// A Session is the connection of an HTTPServer during a request, and after it was hijacked, or a wrapper around a hijacked
// connection that need not see its bytes any more.
type Session interface {
	// Detach returns the connection below it, and what was received from it and not read.
	Detach() (conn net.Conn, unread []byte)
}

// Detach returns the connection below all sessions, and what was received from it. early is a part of
// that.
func Detach(conn net.Conn, early []byte) (net.Conn, []byte) {
	for {
		s, ok := conn.(Session)
		if !ok {
			return conn, early
		}
		var unread []byte
		conn, unread = s.Detach()
		early = append(early, unread...)
	}
}

// MuxedWriter returns the response of a stream that can be taken over, which may be below others.
func MuxedWriter(w http.ResponseWriter) (muxed.Writer, error) {
	if below, ok := Innermost(w).(muxed.Writer); ok {
		return below, nil
	}
	return nil, http.ErrNotSupported
}

// Innermost returns the ResponseWriter below all that have an Unwrap method.
func Innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = u.Unwrap()
	}
}

// IsResponse reports whether w is net/http's own ResponseWriter for HTTP/1.
func IsResponse(w http.ResponseWriter) bool { return isOfHTTP(w, "response") }

// isOfHTTP reports whether v points to a value of the type of net/http that has the name.
func isOfHTTP(v any, name string) bool {
	t := reflect.TypeOf(v)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().PkgPath() == "net/http" &&
		t.Elem().Name() == name
}

// FieldIs reports whether a field of a struct has the value, or is not there.
func FieldIs(v reflect.Value, field string, value bool) bool {
	f := v.FieldByName(field)
	return f.Kind() != reflect.Bool || f.Bool() == value
}

// hasBodyLeft reports whether net/http has not read the whole body of the request that w answers. It
// does not know that of other ResponseWriters.
func hasBodyLeft(w http.ResponseWriter) bool {
	if !IsResponse(w) {
		return false
	}
	body := Pointed(reflect.ValueOf(w)).FieldByName("reqBody")
	return body.Kind() == reflect.Interface && !FieldIs(Pointed(body.Elem()), "sawEOF", true)
}

// Pointed returns the struct that a pointer points to, or an empty one.
func Pointed(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		return v.Elem()
	}
	return reflect.ValueOf(struct{}{})
}

// ConnBelow returns the connection below the body of an upgraded connection, or nil if the body is
// not net/http's own. That has the connection in an embedded field, and what was read ahead in
// another.
func ConnBelow(body io.ReadWriteCloser) net.Conn {
	if !isOfHTTP(body, "readWriteCloserBody") {
		return nil
	}
	field := reflect.ValueOf(body).Elem().FieldByName("ReadWriteCloser")
	if !field.IsValid() {
		return nil
	}
	conn, _ := field.Interface().(net.Conn)
	return conn
}
