package load

import (
	"bytes"
	"errors"
	"time"

	"github.com/socknotify/socknotify/sock"
)

// A flow is a UDP socket with equal datagrams under way. Because they are equal, it does not matter which one was
// lost.
type flow struct {
	request  []byte
	messages []sock.Message
	buf      []byte // for answers, each with one byte to spare, so that a longer one is noticed
	underway int
	last     int64 // when an answer came
}

const (
	// lostAfter is how long a flow waits for an answer before it sends its datagrams again.
	lostAfter = int64(200 * time.Millisecond)
	// datagramBuffer is the size of a socket's receive buffer, if the system allows it.
	datagramBuffer = 4 << 20
)

var errDatagram = errors.New("wrong answer: a datagram is not the one that was sent")

func (w *worker) newFlow(c *conn, s *sock.Socket) *flow {
	s.SetReadBuffer(datagramBuffer)
	return &flow{
		request:  w.table.at(c.phase, 0, w.Size),
		messages: make([]sock.Message, w.Depth),
		buf:      make([]byte, w.Depth*(w.Size+1)),
	}
}

// pumpDatagrams gives up the datagrams under way if no answer came for long, and sends new ones. It runs again
// after lostAfter.
func (w *worker) pumpDatagrams(c *conn, now int64) {
	if now-c.flow.last >= lostAfter {
		c.flow.underway = 0
	}
	if err := w.sendDatagrams(c); err != nil {
		w.fail(c, err)
		return
	}
	w.later(c, now+lostAfter)
}

// sendDatagrams sends until Depth datagrams are under way.
func (w *worker) sendDatagrams(c *conn) error {
	f := c.flow
	messages := f.messages[:w.Depth-f.underway]
	for i := range messages {
		messages[i] = sock.Message{Buf: f.request}
	}
	n, err := c.sock.SendBatch(messages)
	f.underway += n
	if err == sock.ErrWouldBlock {
		return nil
	}
	return err
}

// receiveDatagrams counts the answers that have come, and sends as many new datagrams.
func (w *worker) receiveDatagrams(c *conn) error {
	f := c.flow
	for i := range f.messages {
		f.messages[i] = sock.Message{Buf: f.buf[i*(w.Size+1) : (i+1)*(w.Size+1)]}
	}
	n, err := c.sock.RecvBatch(f.messages)
	if err != nil && err != sock.ErrWouldBlock {
		return err
	}
	if n == 0 {
		return nil
	}
	for i := range f.messages[:n] {
		if m := &f.messages[i]; !bytes.Equal(m.Buf[:m.N], f.request) {
			return errDatagram
		}
	}
	w.requests += int64(n)
	w.end = w.now()
	f.underway -= min(n, f.underway) // an answer may come after its datagram was given up
	f.last = w.end
	if w.draining {
		return nil
	}
	return w.sendDatagrams(c)
}
