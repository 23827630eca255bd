// Package debug is a page that shows live ports: their registrations, with search, sorting and paging, their
// rates, waiters and queues with the last minutes as charts, and what they notify as it happens. Behind
// each view is JSON. Like net/http/pprof it is mounted where the program wants it, and unlike that only
// where the program says so:
//
//	page := debug.New(debug.Port("echo", port))
//	defer page.Close()
//	http.Handle("/debug/socknotify/", page)
//
// # Who may look
//
// The page shows keys and addresses, so by default it serves only requests from this machine. Without [AllowRemote] it
// refuses a request whose RemoteAddr is not a loopback address, with or without a port, or the peer of a listener on a
// Unix socket; and one with a header of a proxy (Forwarded, Via, X-Real-IP, X-Forwarded-For and the like), because the
// address is the proxy's then. It refuses a host name that is not localhost unless [AllowHosts] has it, which keeps other
// sites' scripts out that have a name of theirs resolve to this machine. It changes nothing and answers GET alone;
// nothing it serves comes from elsewhere.
//
// What remains: a proxy or a tunnel on this machine that adds none of these headers, such as ssh -L or one that passes
// on TCP, makes the requests of its clients local ones. Do not put the page behind one, or have it ask for a password.
// So with AllowRemote: put the page behind what asks for a password, or on a listener of its own:
//
//	mux := http.NewServeMux()
//	mux.Handle("/debug/socknotify/", page)
//	go http.ListenAndServe("127.0.0.1:6060", mux)
//
// # Without a page
//
// A program can look at a port itself. [TakeSnapshot] returns its registrations, [Addresses] the addresses of one,
// [Observe] has the port count notifications by registration, and [StartTrace] has it keep its latest actions.
//
// # What it costs
//
// From New to Close the ports are observed ([Observe]) and sampled once a second: some twenty
// nanoseconds a notification and fifty for each look at the kernel that brings any, ten system calls a second,
// 80 KB a port and 50 bytes a registration. A page that is open asks once a second, which is some thirty system
// calls and less than a millisecond; one in a hidden tab does not ask. A trace takes more: it is sent ten times
// a second. Without New there is no cost at all. docs/performance.md has the figures, and how to repeat them.
//
// # JSON
//
// Below the place of the page, all for GET; port may be left out where there is one:
//
//	ports                    [Ports]
//	look?port=&after=&q=…    [Look]: the three that follow at once, with the parameters of each
//	status?port=             [Status]
//	history?port=&after=     [History]
//	registrations?port=&q=&state=&sort=&order=desc&offset=&limit=
//	                         [Registrations]
//	trace?port=&socket=&kind=
//	                         a stream of [Event], one a line; as server-sent events to who accepts those
//
// A query has at most 4,096 bytes, and q at most 16 words. Work on an answer ends when its client has gone. A trace ends
// with the page, with the port, when the Shutdown of its http.Server begins, and when its client takes nothing of it for
// ten seconds.
package debug
