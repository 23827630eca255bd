package park

import "net"

// Detach returns the connection below a session that was hijacked, and the bytes that the session has read and not
// returned. The session must not be used after it. Package websocket uses it, so that a connection needs no session.
func (s *session) Detach() (conn net.Conn, unread []byte) {
	if s.taken < s.n {
		unread = append(unread, s.peek[s.taken:s.n]...)
	}
	s.releasePeek()
	return s.hc.conn, unread
}
