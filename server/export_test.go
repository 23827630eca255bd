package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/observe"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/server/internal/conn"
)

// Faulty has a server make its ports with options, and give up after a time.
func Faulty[S any](s *Server[S], giveUp time.Duration, options ...socknotify.Option) {
	s.server.options, s.server.giveUp = options, giveUp
}

// Grace is the time that a server has for first requests at its end.
func Grace[S any](s *Server[S], d time.Duration) { s.server.graceTime = d }

// FaultyPackets is Faulty for datagrams.
func FaultyPackets(s *PacketServer, giveUp time.Duration, options ...socknotify.Option) {
	s.options, s.giveUp = options, giveUp
}

// bits are the names of the bits of a connection's word, from the lowest.
var bits = strings.Fields(`owned posted handshake paused resumed due grace last hijacked detached
	released closing aborting reset dead eof received noIn more input again back
	out full writable shut gather held noOut`)

// describe is a connection's state, for a test that has failed.
func describe(c *conn.Conn) string {
	var set []string
	word := c.Word()
	for i, name := range bits {
		if word&(1<<i) != 0 {
			set = append(set, name)
		}
	}
	return fmt.Sprintf("shard %d from %v: %v; %d queued", c.Shard, c.RemoteAddr(), set, c.Queued())
}

// Describe is the state of a server's connections and ports, for a test that has failed.
func Describe[S any](typed *Server[S]) string {
	s := &typed.server
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", s.Stats())
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		return b.String()
	}
	fmt.Fprintf(&b, "now is %d\n", s.Wheel.Now())
	for i, p := range s.Ports {
		fmt.Fprintf(&b, "shard %d: %+v\n", i, p.Stats())
		_, infos, _, _, _ := observe.List(port.Of(p), 0, 1000)
		for _, r := range infos {
			fmt.Fprintf(&b, "  socket %d: state %v, %v %v, pending %v\n", r.Handle, r.State, socknotify.Events(r.Filter), socknotify.Trigger(r.Trigger), r.Pending)
		}
	}
	for _, c := range slices.Clone(s.table) {
		fmt.Fprintf(&b, "connection %d: %s\n", c.Index, describe(c))
	}
	return b.String()
}

// ShardOf returns the index of the shard that a connection belongs to.
func ShardOf[S any](c *Conn[S]) int { return int(c.in.Shard) }

// SourceWaits reports whether a stream's reader had nothing, and the worker has left the connection.
func SourceWaits[S any](c *Conn[S]) bool {
	set := describe(&c.in)
	return strings.Contains(set, "noOut") && !strings.Contains(set, "owned")
}
