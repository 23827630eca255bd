package unwrap

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func pair(t *testing.T) (server *net.TCPConn, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in.(*net.TCPConn), client
}

// opaque hides the connection below.
type opaque struct{ hidden net.Conn }

func (o opaque) Read(p []byte) (int, error)         { return o.hidden.Read(p) }
func (o opaque) Write(p []byte) (int, error)        { return o.hidden.Write(p) }
func (o opaque) Close() error                       { return o.hidden.Close() }
func (o opaque) LocalAddr() net.Addr                { return o.hidden.LocalAddr() }
func (o opaque) RemoteAddr() net.Addr               { return o.hidden.RemoteAddr() }
func (o opaque) SetDeadline(t time.Time) error      { return o.hidden.SetDeadline(t) }
func (o opaque) SetReadDeadline(t time.Time) error  { return o.hidden.SetReadDeadline(t) }
func (o opaque) SetWriteDeadline(t time.Time) error { return o.hidden.SetWriteDeadline(t) }

type (
	netConn   struct{ opaque }
	unwrapper struct{ opaque }
	rawOnly   struct{ opaque }
	tcpConn   struct{ opaque }
	tcpOne    struct{ opaque }
	proxy     struct{ opaque }
	itself    struct{ opaque }
	noSocket  struct{ opaque }
	failing   struct{ netConn }

	embedding struct {
		net.Conn
		n int
	}
	promoted struct{ *net.TCPConn }
	two      struct {
		net.Conn
		*net.UnixConn
	}
	unexported    struct{ conn }
	conn          = net.Conn
	notComparable struct {
		*net.TCPConn
		_ []int
	}
)

func (w netConn) NetConn() net.Conn                    { return w.hidden }
func (w unwrapper) Unwrap() net.Conn                   { return w.hidden }
func (w rawOnly) Raw() net.Conn                        { return w.hidden }
func (w tcpConn) TCPConn() (*net.TCPConn, bool)        { c, ok := w.hidden.(*net.TCPConn); return c, ok }
func (w tcpOne) TCPConn() *net.TCPConn                 { c, _ := w.hidden.(*net.TCPConn); return c }
func (w proxy) Raw() net.Conn                          { return w.hidden }
func (w proxy) TCPConn() (*net.TCPConn, bool)          { c, ok := w.hidden.(*net.TCPConn); return c, ok }
func (w itself) NetConn() net.Conn                     { return w }
func (noSocket) SyscallConn() (syscall.RawConn, error) { return nil, errors.ErrUnsupported }
func (failing) SyscallConn() (syscall.RawConn, error)  { return nil, errors.ErrUnsupported }

func TestFind(t *testing.T) {
	tcp, _ := pair(t)
	hook := func(c net.Conn) net.Conn {
		if o, ok := c.(opaque); ok {
			return o.hidden
		}
		return nil
	}
	stop := func(c net.Conn) net.Conn { return c }
	for _, c := range []struct {
		name        string
		conn        net.Conn
		hook        Hook
		plain, lazy bool
	}{
		{"tcp", tcp, nil, true, false},
		{"tcp, a hook that stops", tcp, stop, true, false},
		{"tls", tls.Server(tcp, &tls.Config{}), nil, false, false},
		{"NetConn", netConn{opaque{tcp}}, nil, false, false},
		{"Unwrap", unwrapper{opaque{tcp}}, nil, false, false},
		{"Raw", rawOnly{opaque{tcp}}, nil, false, false},
		{"TCPConn and ok", tcpConn{opaque{tcp}}, nil, false, false},
		{"TCPConn", tcpOne{opaque{tcp}}, nil, false, false},
		{"Raw and TCPConn", proxy{opaque{tcp}}, nil, false, true},
		{"embedded interface", &embedding{tcp, 1}, nil, false, false},
		{"struct value", embedding{tcp, 1}, nil, false, false},
		{"layers", &embedding{tls.Server(proxy{opaque{unwrapper{opaque{tcp}}}}, nil), 0}, nil, false, true},
		{"hook", &embedding{opaque{tcp}, 0}, hook, false, false},
		{"SyscallConn fails, NetConn is there", failing{netConn{opaque{tcp}}}, nil, false, false},
	} {
		s, err := Find(c.conn, c.hook)
		if err != nil || s.Conn != syscall.Conn(tcp) || s.Raw == nil || s.Plain != c.plain || s.Lazy != c.lazy {
			t.Errorf("%s: found %T, %v, plain %v, lazy %v", c.name, s.Conn, err, s.Plain, s.Lazy)
		}
	}
	if s, err := Find(promoted{tcp}, nil); err != nil || s.Conn != syscall.Conn(promoted{tcp}) || s.Plain {
		t.Errorf("a promoted SyscallConn: found %T, %v, plain %v", s.Conn, err, s.Plain)
	}
	for name, c := range map[string]struct {
		conn  net.Conn
		hook  Hook
		names []string // in the error
	}{
		"opaque":          {&embedding{opaque{tcp}, 0}, nil, []string{"unwrap.opaque in *unwrap.embedding", "NetConn"}},
		"a hook's stop":   {&embedding{tcp, 0}, stop, []string{"*unwrap.embedding"}},
		"itself":          {itself{opaque{tcp}}, nil, []string{"unwrap.itself"}},
		"no TCP":          {tcpConn{opaque{opaque{tcp}}}, nil, []string{"unwrap.tcpConn"}},
		"two embedded":    {two{tcp, new(net.UnixConn)}, nil, []string{"unwrap.two"}},
		"unexported":      {unexported{tcp}, nil, []string{"unwrap.unexported"}},
		"fails":           {noSocket{opaque{tcp}}, nil, []string{"unwrap.noSocket", "SyscallConn: unsupported"}},
		"empty embedding": {&embedding{}, nil, []string{"*unwrap.embedding"}},
	} {
		_, err := Find(c.conn, c.hook)
		var e *OpaqueError
		if !errors.As(err, &e) {
			t.Errorf("%s: %v, want an OpaqueError", name, err)
			continue
		}
		for _, part := range c.names {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error does not name %q: %v", name, part, err)
			}
		}
	}
	for name, c := range map[string]net.Conn{"nil": nil, "nil TCP": (*net.TCPConn)(nil), "nil Unix": (*net.UnixConn)(nil),
		"nil struct": (*embedding)(nil)} {
		if _, err := Find(c, nil); !errors.Is(err, ErrNil) {
			t.Errorf("%s: %v, want ErrNil", name, err)
		}
	}
	if _, err := Find(notComparable{tcp, nil}, hook); err == nil {
		t.Error("a connection that cannot be compared was found")
	}
}

func TestFindListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type embeds struct{ net.Listener }
	type field struct {
		embedsNothing
		Listener net.Listener
	}
	type promoted struct{ *net.TCPListener }
	tcp := l.(*net.TCPListener)
	for name, c := range map[string]struct {
		l     net.Listener
		plain bool
	}{
		"plain":    {l, true},
		"TLS":      {tls.NewListener(l, &tls.Config{}), false},
		"embedded": {embeds{&embeds{l}}, false},
		"field":    {&field{Listener: l}, false},
		"Unwrap":   {unwrapListener{embedsNothing{}, l}, false},
	} {
		found, err := FindListener(c.l)
		if err != nil || found.Conn != syscall.Conn(tcp) || found.Raw == nil || found.Plain != c.plain {
			t.Errorf("%s: found %T, %v, plain %v", name, found.Conn, err, found.Plain)
		}
	}
	if found, err := FindListener(promoted{tcp}); err != nil || found.Plain {
		t.Errorf("a promoted SyscallConn: %v, plain %v", err, found.Plain)
	}
	var e *OpaqueError
	if _, err := FindListener(embedsNothing{}); !errors.As(err, &e) {
		t.Errorf("opaque: %v", err)
	}
	if _, err := FindListener(nil); !errors.Is(err, ErrNil) {
		t.Errorf("nil: %v", err)
	}
}

type embedsNothing struct{}

func (embedsNothing) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (embedsNothing) Close() error              { return nil }
func (embedsNothing) Addr() net.Addr            { return nil }

type unwrapListener struct {
	embedsNothing
	below net.Listener
}

func (l unwrapListener) Unwrap() net.Listener { return l.below }

// script is a connection whose Reads return the given results after its deadline has passed.
type script struct {
	net.Conn
	refused error // by SetReadDeadline
	results []result
	past    bool
}

type result struct {
	bytes string
	err   error
}

func (s *script) SetReadDeadline(t time.Time) error {
	s.past = t.Equal(Past)
	return s.refused
}

func (s *script) Read(p []byte) (int, error) {
	if !s.past {
		return 0, errors.New("Read without a deadline in the past")
	}
	if len(s.results) == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	r := s.results[0]
	s.results = s.results[1:]
	return copy(p, r.bytes), r.err
}

func TestReadAhead(t *testing.T) {
	strange := errors.New("strange")
	reset := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for name, c := range map[string]struct {
		conn  *script
		bytes string
		err   error // what errors.Is finds
		unfit bool
	}{
		"nothing":                 {&script{}, "", nil, false},
		"a wrapped timeout":       {&script{results: []result{{"", &net.OpError{Err: os.ErrDeadlineExceeded}}}}, "", nil, false},
		"bytes":                   {&script{results: []result{{"ab", nil}}}, "ab", nil, false},
		"bytes and an error":      {&script{results: []result{{"ab", io.EOF}}}, "ab", io.EOF, false},
		"bytes and a timeout":     {&script{results: []result{{"ab", os.ErrDeadlineExceeded}}}, "ab", os.ErrDeadlineExceeded, false},
		"nothing, then bytes":     {&script{results: []result{{"", nil}, {"ab", nil}}}, "ab", nil, false},
		"end":                     {&script{results: []result{{"", io.EOF}}}, "", io.EOF, false},
		"closed":                  {&script{results: []result{{"", net.ErrClosed}}}, "", net.ErrClosed, false},
		"reset":                   {&script{results: []result{{"", reset}}}, "", syscall.ECONNRESET, false},
		"its own error":           {&script{results: []result{{"", strange}}}, "", strange, true},
		"no deadlines":            {&script{refused: os.ErrNoDeadline}, "", os.ErrNoDeadline, true},
		"closed, no deadlines":    {&script{refused: net.ErrClosed}, "", net.ErrClosed, false},
		"nothing again and again": {&script{results: make([]result, 1000)}, "", io.ErrNoProgress, true},
	} {
		buf := make([]byte, 16)
		n, err := ReadAhead(c.conn, buf)
		var unfit *UnfitError
		if string(buf[:n]) != c.bytes || !errors.Is(err, c.err) || errors.As(err, &unfit) != c.unfit {
			t.Errorf("%s: %q, %v", name, buf[:n], err)
		}
		if unfit != nil && unfit.Type != "*unwrap.script" {
			t.Errorf("%s: type %s", name, unfit.Type)
		}
	}
}

// Reading ahead from a socket takes no byte from it.
func TestReadAheadSocket(t *testing.T) {
	server, client := pair(t)
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	if n, err := io.ReadFull(server, buf[:1]); n != 1 || err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	if n, err := ReadAhead(&embedding{server, 0}, buf); n != 0 || err != nil {
		t.Fatalf("read ahead %d, %v", n, err)
	}
	server.SetReadDeadline(time.Time{})
	if n, err := server.Read(buf); string(buf[:n]) != "y" || err != nil {
		t.Fatalf("then %q, %v", buf[:n], err)
	}
}

func TestPendingTLS(t *testing.T) {
	tcp, _ := pair(t)
	if PendingTLS(tcp, nil) != nil || PendingTLS(&embedding{tcp, 0}, nil) != nil {
		t.Error("without TLS there is no handshake")
	}
	inner := tls.Server(tcp, &tls.Config{})
	if PendingTLS(inner, nil) != inner || PendingTLS(&embedding{inner, 0}, nil) != inner {
		t.Error("the handshake has not begun")
	}
	if outer := tls.Server(inner, &tls.Config{}); PendingTLS(outer, nil) != outer {
		t.Error("the outer handshake has not begun")
	}
	if !Plain(tcp) || Plain(inner) || Plain(&embedding{tcp, 0}) {
		t.Error("Plain")
	}
}

// Types for TestTransparent.
type (
	Closes      struct{ net.Conn }
	closesValue struct{ net.Conn }
	twice       struct{ *Closes }
	concrete    struct{ *net.TCPConn }
	Reads       struct{ net.Conn }
	ReadsValue  struct{ net.Conn }
	writes      struct{ net.Conn }
	aboveReads  struct{ *Reads }
	aboveValue  struct{ ReadsValue }
)

func (c *Closes) Close() error                  { return c.Conn.Close() }
func (c closesValue) Close() error              { return c.Conn.Close() }
func (r *Reads) Read(b []byte) (int, error)     { return r.Conn.Read(b) }
func (r ReadsValue) Read(b []byte) (int, error) { return r.Conn.Read(b) }
func (w *writes) Write(b []byte) (int, error)   { return w.Conn.Write(b) }

func TestTransparent(t *testing.T) {
	tcp, _ := pair(t)
	for name, c := range map[string]struct {
		conn net.Conn
		want bool
	}{
		"plain":           {tcp, true},
		"Close":           {&Closes{tcp}, true},
		"Close, value":    {closesValue{tcp}, true},
		"pointer to that": {&closesValue{tcp}, true},
		"two layers":      {&twice{&Closes{tcp}}, true},
		"concrete":        {concrete{tcp}, true},
		"to concrete":     {&concrete{tcp}, true},
		"Read":            {&Reads{tcp}, false},
		"Read, value":     {ReadsValue{tcp}, false},
		"pointer to it":   {&ReadsValue{tcp}, false},
		"Write":           {&writes{tcp}, false},
		"above Read":      {aboveReads{&Reads{tcp}}, false},
		"above a value":   {&aboveValue{ReadsValue{tcp}}, false},
		"TLS":             {tls.Server(tcp, &tls.Config{}), false},
		"nil inside":      {&Closes{}, false},
		"nil":             {nil, false},
	} {
		if got := Transparent(c.conn); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
