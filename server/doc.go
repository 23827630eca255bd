// Package server is a multi-threaded server on socknotify ports: workers that each dequeue from a
// port, one-shot level registrations that are enabled again when a handler returns, and connections
// that are freed when their last notification was dequeued. Use it for a protocol of your own where
// many connections are idle, or where the CPU time of small requests matters. For net/http, and for
// handlers that block on a net.Conn, see package park. A websocket.Server, an sse.Server and a
// gateway are each an http.Handler, for an http.Server that a park.HTTPServer runs. The page
// docs/servers.md compares the fields of all of them.
//
//	type echo struct{}
//
//	func (echo) Open(c *server.Conn[struct{}]) error { return nil }
//
//	func (echo) Data(c *server.Conn[struct{}], buf []byte) error {
//		n, err := c.Read(buf)
//		if err == nil {
//			_, err = c.Write(buf[:n])
//		}
//		return err
//	}
//
//	func (echo) Close(c *server.Conn[struct{}], cause error) {}
//
//	s := &server.Server[struct{}]{Handler: echo{}}
//	err := s.ListenAndServe("tcp", "127.0.0.1:7")
//
// # The life of a connection
//
// A worker dequeues a connection that the port has accepted. If the limits allow it, the worker
// calls Open and registers the socket.
//
// When bytes arrive, one worker dequeues the notification, which also disables the registration.
// That worker owns the connection: it calls Data with a buffer of its own, and enables the
// registration again when Data has returned. Bytes that Data left unread, or that have arrived
// since, notify again. Usually the socket is known to be drained, and then enabling costs no system
// call. So a small request and its answer cost a receive, a send and a share in dequeuing.
//
// Instead of Read, Data can use the input: Peek, Next, Discard, Line and Until return messages of a
// protocol, and keep what is not complete. Data is called again when the rest has come.
//
// What Data writes is sent when it returns; other writes are sent at once. Bytes that the system
// does not take are queued; the registration then waits for EventOut as well, and a worker sends
// the rest. While more than half of the write queue is in use, the connection is not received from,
// so a peer that sends and does not read delays only itself. Write may be called by any goroutine
// at any time, also while the connection is idle.
//
// When the peer ends its stream, Data reads all that was sent and then io.EOF. The connection can
// still be written to. It ends when the handler returns that io.EOF or calls Close, or after
// CloseWrite, since both directions are over then. A reset by the peer ends the connection at once,
// and the cause is ECONNRESET.
//
// Handlers, other goroutines, timeouts and limits end a connection by a bit in its state. The
// worker that owns the connection removes the registration; if none owns it, a worker is woken to
// do so. The EventRemove is the last notification. The worker that dequeues it calls the handler's
// Close, closes the socket and frees the connection.
//
// # Blocking
//
// A handler that waits for something occupies a worker. Instead it can call [Conn.Pause], have
// another goroutine write the answer, and call [Conn.Resume]. Or it can [Conn.Hijack] the
// connection for a goroutine that reads and writes a net.Conn, and give it back by Resume. If a
// handler does block for a tenth of a second, another worker takes over the notifications that its
// worker has dequeued. Stats.Longest shows the time of the call that has lasted longest; a call
// that lasts longer than Server.StuckAfter is counted and logged.
//
// # TLS
//
// [Server.ServeTLS] and [Server.ListenAndServeTLS] serve TLS with Server.TLSConfig. The handler is
// the same. An idle connection has no goroutine and no buffers.
//
// # Large answers, timers, proxies, restarts
//
// [Conn.Stream] and [Conn.SendFile] send answers of any size in bounded memory. [Conn.AfterFunc]
// calls a function later, where Data would be called. [Server.Preamble] reads a header before the
// protocol: package server/proxyproto has one for the PROXY protocol. Package server/handover
// passes listeners to another process, for a restart that refuses no connection.
//
// # Datagrams
//
// A [PacketServer] has the same shape for UDP, with batches of datagrams for connections.
package server

// The files, in the order in which a request passes them. A file calls those below it.
//
//	server.go, conn.go          the API
//	parts.go, config.go         the server's parts; options and their defaults; tls.go: certificates
//	listener.go                 listeners, new connections; limits.go: how many there may be
//	handler.go                  the calls of handlers, whatever the type of their state
//	shards.go, worker.go        workers, and how many each port has
//	serve.go                    Serve, Shutdown, Close
//	stats.go, errors.go         what users read
//	packetworker.go, packet.go  PacketServer
//
// A connection is in internal/conn. What both servers use is in internal/engine: their log, their
// retries, the watchdog. PacketServer uses nothing else of this package: it stays here because half
// of it is its API, and a package below could not name the PacketConn that is the key of its port.
