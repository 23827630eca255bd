// Package interop tests packages park and server with the listeners and servers of other modules:
// netutil.LimitListener, go-proxyproto, cmux, gRPC, mochi-mqtt, SSH and fasthttp; with chi's router
// and the middleware that docs/suspend.md names; and tunnels with clients of WebSockets and gRPC,
// with Chromium, with Node.js, and with nghttpx in front.
package interop
