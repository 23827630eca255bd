package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/socknotify/socknotify/park"
)

const (
	maxMessage = 4 << 10          // bytes
	maxQueued  = 256 << 10        // bytes for a member that does not read
	patience   = 10 * time.Second // for the rest of a message that has begun, and for a message to be sent
)

// readers have the only receive buffers. They are in use only while there is something to receive.
var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

// A member is one connection. While it is idle, this is all that it needs.
type member struct {
	hub    *hub
	conn   *park.Conn
	name   string
	pinged bool // and nothing was received since; owned by the goroutine that owns the connection

	mu     sync.Mutex
	queue  []byte // frames to be sent
	active bool   // a goroutine is sending them
	ended  bool   // it closes the connection after the last one
}

// serve is called by the lot. The connection is not parked until receive parks it.
func (m *member) serve(conn net.Conn) {
	in := readers.Get().(*bufio.Reader)
	in.Reset(conn)
	defer func() {
		in.Reset(nil)
		readers.Put(in)
	}()
	// A deadline may be set only after the first bytes, because a connection that was parked for too long has an
	// expired one.
	_, err := in.Peek(1)
	switch {
	case err == nil:
		m.pinged = false
	case errors.Is(err, os.ErrDeadlineExceeded) && !m.pinged:
		m.pinged = true
		m.send(ws.CompiledPing)
	default:
		m.quit(err)
		return
	}
	m.receive(in)
}

// receive receives messages until the buffer is empty, and then parks the connection.
func (m *member) receive(in *bufio.Reader) {
	for in.Buffered() > 0 {
		m.conn.SetReadDeadline(time.Now().Add(patience))
		if err := m.message(in); err != nil {
			m.quit(err)
			return
		}
	}
	if err := m.hub.lot.Park(m.conn, m.serve); err != nil {
		m.quit(err)
	}
}

// message receives one message or one control frame.
func (m *member) message(in io.Reader) error {
	control := wsutil.ControlFrameHandler(m, ws.StateServerSide)
	r := wsutil.Reader{Source: in, State: ws.StateServerSide, CheckUTF8: true, MaxMessageSize: maxMessage, OnIntermediate: control}
	head, err := r.NextFrame()
	if err != nil {
		return err
	}
	if head.OpCode.IsControl() {
		return control(head, &r)
	}
	if head.OpCode != ws.OpText {
		return errNotText
	}
	text, err := io.ReadAll(&r)
	if err != nil {
		return err
	}
	m.hub.say(m, string(text))
	return nil
}

var errNotText = errors.New("want a text message")

// quit leaves the hub, and sends the reason to the peer if possible.
func (m *member) quit(err error) {
	m.hub.leave(m)
	var farewell []byte // if the peer has closed, it was sent already
	var protocol ws.ProtocolError
	switch {
	case errors.Is(err, errNotText):
		farewell = ws.CompiledCloseUnsupportedData
	case errors.Is(err, wsutil.ErrMessageTooLarge):
		farewell = ws.CompiledCloseMessageTooBig
	case errors.Is(err, wsutil.ErrInvalidUTF8):
		farewell = ws.CompiledCloseInvalidFramePayloadData
	case errors.As(err, &protocol):
		farewell = ws.CompiledCloseProtocolError
	}
	m.end(farewell)
}

// Write queues a whole frame, which package wsutil writes.
func (m *member) Write(frame []byte) (int, error) {
	m.send(frame)
	return len(frame), nil
}

// send queues a frame. A goroutine sends what is queued and ends. No other goroutine waits for a peer.
func (m *member) send(frame []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enqueue(frame)
}

// end sends a last frame, if any, and closes.
func (m *member) end(frame []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enqueue(frame)
	m.ended = true
}

func (m *member) enqueue(frame []byte) {
	if m.ended {
		return
	}
	m.queue = append(m.queue, frame...)
	if len(m.queue) > maxQueued {
		m.ended, m.queue = true, nil
		m.hub.writing.Go(m.close) // which ends a blocked Write
	}
	if !m.active {
		m.active = true
		m.hub.writing.Go(m.flush)
	}
}

// flush sends until the queue is empty.
func (m *member) flush() {
	for {
		m.mu.Lock()
		out := m.queue
		m.queue = nil
		ended := m.ended
		m.active = len(out) > 0
		m.mu.Unlock()
		if len(out) == 0 {
			if ended {
				m.close()
			}
			return
		}
		m.conn.SetWriteDeadline(time.Now().Add(patience))
		if _, err := m.conn.Write(out); err != nil {
			m.mu.Lock()
			m.ended, m.queue = true, nil
			m.mu.Unlock()
		}
	}
}

// close closes the connection. If it is parked, serve is called and finds it closed.
func (m *member) close() { m.hub.lot.CloseConn(m.conn) }
