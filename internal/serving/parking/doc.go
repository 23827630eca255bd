// Package parking parks connections: it is what a park.Lot does. The packages that park for themselves,
// such as stream and tunnel, use it through internal/serving/carrier. What park.Lot has too is described
// there.
//
// The files. A connection that is parked passes these:
//
//	lot.go          the Lot from New to Close
//	conn.go         what a connection with TLS, or another wrapper, may have read already
//	park.go         Park: the connection is registered with the port
//	parkedconn.go   the states of a parked connection, and the call of its function
//	workers.go      the goroutines that call functions
//	steady.go       the next bytes come soon: the worker keeps the connection
//	proxyheader.go  a PROXY header comes before the first byte
//	unpark.go       Unpark, Wake, CloseConn
//	closed.go       the program has closed a parked connection
//	unbound.go      what has no descriptor is parked, such as a stream of HTTP/2
//	table.go, counts.go, errors.go
package parking
