package conformance

import (
	"errors"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// E6 and E7: sockets before and while they connect.
var connectCases = map[string]func(*env){}

var everyWay = []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot}

// refusedSocket makes a socket whose connect has failed.
func (e *env) refusedSocket() *socket {
	e.Helper()
	for range 20 {
		if s := e.fresh(); e.refuseConnect(s) {
			return s
		}
	}
	e.Skip("this system refuses within the call")
	return nil
}

// refuseConnect starts a connect that fails. False says that the call itself has told already, so that nothing
// is pending; the socket is closed then.
func (e *env) refuseConnect(s *socket) bool {
	e.Helper()
	if err := s.Connect(e.nowhere(sock.TCP4)); !errors.Is(err, sock.ErrWouldBlock) {
		s.Close()
		return false
	}
	settle(e, s, stateErr)
	return true
}
