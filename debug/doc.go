// Package debug provides a web page that shows live servers of packages server and park: their connections, requests,
// bytes and handler times, now and in charts of the last minutes. Behind a tab it shows the inside of their ports, and of
// any other port: the registrations, with search, sorting and paging; charts of rates, waiters and queues; and a trace of
// notifications. Above both are the goroutines and the memory of the process. Each view is also available as JSON. The program mounts the page explicitly; importing the package
// registers no handler:
//
//	page := debug.New(debug.Server("echo", s), debug.Port("other", port))
//	defer page.Close()
//	http.Handle("/debug/socknotify/", page)
//
// [Ready] is a readiness check for Kubernetes, which fails as soon as a server's Shutdown begins.
//
// # Access
//
// The page shows keys and addresses. So by default it serves only requests from this machine. Without [AllowRemote]
// it refuses a request unless its RemoteAddr is a loopback address, or the listener is a Unix socket. It also
// refuses a request with a header that proxies add (Forwarded, Via, X-Real-IP, X-Forwarded-For and similar),
// because its RemoteAddr is the address of the proxy. It refuses host names other than localhost, unless they were
// passed to [AllowHosts]. That protects against scripts of other sites whose host names resolve to this machine.
// The page is read-only, answers only GET, and loads nothing from other servers.
//
// One risk remains: requests through a proxy or tunnel on this machine that adds none of these headers, such as ssh
// -L or a TCP proxy, are served as local requests. Do not put the page behind such a proxy without a password. With
// AllowRemote, protect the page by a password, or use a listener of its own:
//
//	mux := http.NewServeMux()
//	mux.Handle("/debug/socknotify/", page)
//	go http.ListenAndServe("127.0.0.1:6060", mux)
//
// # Without a page
//
// A program can inspect a port itself. [TakeSnapshot] returns its registrations, and [Addresses] the addresses of
// one. [Observe] makes the port count notifications per registration, and [StartTrace] makes it record its latest
// actions.
//
// # Cost
//
// From New to Close the ports are observed ([Observe]) and sampled once a second. That costs about 20 ns per
// notification, 50 ns per poll that returns any, ten system calls per second, 80 KB per port and 50 bytes per
// registration. A server or lot is sampled once a second too, in memory of up to 300 KB. An open page sends one request
// per second, which costs about thirty system calls and less than a millisecond. A page in a hidden tab sends none. A
// trace costs more: it is sent ten times per second. Without New there is no cost. docs/performance.md has the
// measurements and explains how to repeat them.
//
// # JSON
//
// The following paths are relative to the page and accept GET. The parameters server and port may be omitted if there
// is only one:
//
//	servers                  [Servers]: servers and lots, with the names of their ports
//	server?server=&after=&process=
//	                         [ServerView], with a [Process]
//	process?after=           [Process]: goroutines and memory
//	ports                    [Ports]
//	view?port=&after=&process=&q=…
//	                         [View]: status, registrations, history and process in one answer, with their parameters
//	status?port=             [Status]
//	history?port=&after=     [History]
//	registrations?port=&q=&state=&sort=&order=desc&offset=&limit=
//	                         [Registrations]
//	trace?port=&socket=&kind=
//	                         a stream of [Event], one per line, or as server-sent events if the client accepts those
//
// A query may have at most 4,096 bytes, and q at most 16 words. Work on an answer stops when its client
// disconnects. A trace ends when the page or the port is closed, when Shutdown of its http.Server is called, and
// when its client receives nothing for ten seconds.
package debug

// The files, in the order in which a request for the page passes them:
//
//	handler.go   the Handler and its pages; guard.go: who may see them
//	services.go  the servers and lots that it shows; source.go: their ports
//	snapshot.go  the state of a port; rows.go: its registrations, selected and ordered; keys.go: a key as text
//	history.go   the samples of the charts; process.go: goroutines and memory
//	trace.go     notifications while they happen; stream.go: the answer that carries them
