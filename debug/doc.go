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
// The page tells keys and addresses, so it answers nobody but the machine itself: requests from other than
// loopback addresses are refused unless [AllowRemote] is given, and those for a host name that is not
// localhost unless [AllowHosts] has it, which keeps other sites' scripts out that have a name of theirs
// resolve to this machine. It changes nothing and answers GET alone; nothing it serves comes from
// elsewhere. With AllowRemote put it behind what asks for a password, or on a listener of its own:
//
//	mux := http.NewServeMux()
//	mux.Handle("/debug/socknotify/", page)
//	go http.ListenAndServe("127.0.0.1:6060", mux)
//
// # What it costs
//
// From New to Close the ports are observed ([socknotify.Port.Observe]) and sampled once a second: some twenty
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
package debug
