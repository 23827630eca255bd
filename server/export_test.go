package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/observe"
	"github.com/socknotify/socknotify/internal/port"
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

// names are those of a connection's word.
var names = []struct {
	bit  uint32
	name string
}{
	{wOwned, "owned"}, {wOut, "out"}, {wFull, "full"}, {wWritable, "writable"}, {wEOF, "eof"}, {wShut, "shut"}, {wPaused, "paused"},
	{wResumed, "resumed"}, {wClosing, "closing"}, {wAborting, "aborting"}, {wReset, "reset"}, {wHijacked, "hijacked"},
	{wReleased, "released"}, {wPosted, "posted"}, {wDead, "dead"}, {wHandshake, "handshake"}, {wMore, "more"}, {wDetached, "detached"}, {wLast, "last"},
	{wReceived, "received"}, {wGrace, "grace"}, {wNoOut, "no out"},
	{wNoIn, "no in"}, {wDue, "due"}, {wInput, "input"}, {wAgain, "again"}, {wBack, "back"}, {wGather, "gather"}, {wHeld, "held"},
}

// describe is a connection's state, for a test that has failed.
func (c *conn) describe() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	word := c.word.Load()
	var b strings.Builder
	fmt.Fprintf(&b, "shard %d, active at %d:", c.shard, c.active.Load())
	for _, n := range names {
		if word&n.bit != 0 {
			fmt.Fprintf(&b, " %s", n.name)
		}
	}
	if word&(wDetached|wDead) == 0 {
		fmt.Fprintf(&b, "; socket %d from %v", c.socket().Handle(), c.socket().RemoteAddr())
	}
	if x := c.extra; x != nil {
		fmt.Fprintf(&b, "; %d queued, cause %v", len(x.queue)-x.head, x.cause)
	}
	return b.String()
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
	fmt.Fprintf(&b, "now is %d\n", s.wheel.Now())
	for i, p := range s.shards {
		fmt.Fprintf(&b, "shard %d: %+v\n", i, p.Stats())
		_, infos, _, _, _ := observe.List(port.Of(p.Port), 0, 1000)
		for _, r := range infos {
			fmt.Fprintf(&b, "  socket %d: state %v, %v %v, pending %v\n", r.Handle, r.State, socknotify.Events(r.Filter), socknotify.Trigger(r.Trigger), r.Pending)
		}
	}
	for _, c := range slices.Clone(s.table) {
		fmt.Fprintf(&b, "connection %d: %s\n", c.index, c.describe())
	}
	return b.String()
}

// ShardOf returns the index of the shard that a connection belongs to.
func ShardOf[S any](c *Conn[S]) int { return int(c.conn.shard) }

// SourceWaits reports whether a stream's reader had nothing, and the worker has left the connection.
func SourceWaits[S any](c *Conn[S]) bool { return c.conn.word.Load()&(wNoOut|wOwned) == wNoOut }
