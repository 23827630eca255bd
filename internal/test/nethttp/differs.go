package main

// A difference is a test that fails for a reason that is known.
type difference struct {
	pkg, test string // test is a regular expression for the whole name
	http2     bool   // only with -http2
	tunnels   bool   // with -tunnels; others are without it
	sometimes bool   // it may also pass
	why       string
}

const wrapper = "Hijack gives a wrapper of the connection, whose NetConn method returns the *net.TCPConn; " +
	"the test asserts the type (doc comment of park.HTTPServer)"

var differences = []difference{
	{pkg: "net/http", test: "TestHijackAfterCloseNotifier/h1", why: wrapper},
	{pkg: "net/http/httputil", test: "TestReverseProxyWebSocketHalfTCP/.*", why: wrapper},
	{pkg: "net/http/httputil", test: "TestReverseProxyWebSocketCancellation", tunnels: true,
		why: "a tunnel does not end with the context of its request, because the handler has returned"},
	{pkg: "net/http", test: "TestTransport(ConnectionCloseOnRe(quest|sponse)|KeepAlives|ServerClosingUnexpectedly)/h1", sometimes: true,
		why: "the test takes net/http's own net.Conn for the connection; each request after a pause has another one, as has the second of a connection"},
	{pkg: "net/http", test: "TestServerShutdown/h2", http2: true,
		why: "the test reads net/http's own table of connections, in which those of park/http2 are not"},
	{pkg: "connectrpc.com/connect", test: "TestHandlerWithRequestGate/.*gates_streaming_procedures.*", sometimes: true,
		why: "a race of the test, which fails with net/http alone in 20 of 1,000 runs: the server may have rejected before Send"},
}
