// Package server is the multi-threaded server on a socknotify port: workers that share the port, one-shot
// level-triggered registrations that are enabled again when a handler returns, and connections that are
// freed exactly when nothing can come for them any more.
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
// A worker dequeues a connection that the port has accepted. If the limits allow it, the worker calls Open
// and registers the socket.
//
// When something can be received, one worker is notified, and the registration is disabled by that. The
// connection is this worker's now: it calls Data with its own buffer, and enables the registration again
// when Data has returned. What Data left unread, and what has come since, notifies again. Nearly always the
// socket knows that it was drained, and enabling costs no system call; so a small request and its answer
// cost a receive, a send, and a share in dequeuing.
//
// Write sends at once. What the system does not take is queued, the registration waits for room as well,
// and a worker sends the rest. While more than half of what may be queued is, the connection is not
// received from; so a peer that sends and does not read holds up itself alone. Write may be called by any
// goroutine at any time, and so can push to an idle connection.
//
// A peer that ends its stream makes Data read io.EOF, after all else. The connection can still be written
// to. It ends when the handler returns that io.EOF or calls Close, or with CloseWrite, since both directions
// are over then. A peer that resets ends it at once, with a cause that is ECONNRESET,
// whichever call found out.
//
// Whoever ends a connection, its handler, another goroutine, a time-out, a limit or the server, only says
// so in the connection's state. The worker that owns it, or one that is woken to, removes the registration.
// The EventRemove is the port's last word, and whoever dequeues it calls the handler's Close, closes the
// socket and forgets the connection.
//
// # Blocking
//
// A handler that waits for something else keeps a worker. It may instead [Conn.Pause] the connection, have
// another goroutine write the answer, and [Conn.Resume]; or [Conn.Hijack] it for a goroutine that reads and
// writes a net.Conn, and give it back by Resume. If a handler does block, another worker takes over what
// its worker had dequeued after a tenth of a second; Stats and the log tell of it.
//
// # TLS
//
// [Server.ServeTLS] puts crypto/tls under each connection; the handler is the same. An idle connection has no
// goroutine, and no buffer but those of crypto/tls.
//
// # Datagrams
//
// A [PacketServer] has the same shape for UDP, with batches of datagrams for connections.
package server
