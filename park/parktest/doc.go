// Package parktest tests packages park and server with the listeners and servers of other modules: netutil.LimitListener,
// go-proxyproto, cmux, gRPC and mochi-mqtt. It is a module of its own because of what it depends on.
package parktest
