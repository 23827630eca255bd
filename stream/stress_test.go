package stream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
)

// A stressStream is what one stream of TestStreamStress was written, as [writer, sequence, length,
// bytes].
type stressStream struct {
	accepted  [stressWriters]atomic.Int64 // writes that were accepted
	graceful  atomic.Bool                 // it was closed after what is queued
	closed    chan struct{}
	err       error // of OnClose
	received  [stressWriters]int64
	inputSent atomic.Int64 // bytes
	inputGot  atomic.Int64
}

const stressWriters = 3

// Streams of every kind are written to by several goroutines while their peers read slowly, send,
// stop reading, reset and end their connections, and the server closes, aborts and shuts down. What
// a peer receives is a beginning of each writer's messages, whole and in order, and all of them if
// the stream was closed gracefully and the peer has read on; OnInput gets a beginning of what the
// peer has sent; and nothing is left behind.
func TestStreamStress(t *testing.T) {
	for end := time.Now().Add(conntest.StressDuration(t)); ; {
		stressRound(t)
		if t.Failed() || time.Now().After(end) {
			return
		}
	}
}

func stressRound(t *testing.T) {
	g := &Streams{MaxQueued: 256 << 10, SlowPolicy: SlowDrop, WriteTimeout: conntest.Timeout, Logger: conntest.Quiet,
		MaxRunning: []int{0, 2}[rand.IntN(2)]}
	g.OnInput = func(s *Stream, b []byte) error {
		x := s.Value.(*stressStream)
		from := x.inputGot.Add(int64(len(b))) - int64(len(b))
		for i, c := range b {
			if want := byte(from + int64(i)); c != want {
				return fmt.Errorf("input byte %d is %d", from+int64(i), c)
			}
		}
		if rand.IntN(20) == 0 {
			await.Pause(time.Millisecond)
		}
		return nil
	}
	g.OnTimer = func(*Stream) time.Duration { return 50 * time.Millisecond }
	g.OnClose = func(s *Stream, err error) {
		if err != nil && bytes.HasPrefix([]byte(err.Error()), []byte("input byte")) {
			t.Error(err)
		}
		x := s.Value.(*stressStream)
		x.err = err
		close(x.closed)
	}
	var all sync.WaitGroup
	for range 3 {
		for _, pair := range conntest.Kinds {
			server, client := pair(t)
			all.Go(func() { stressOne(t, g, server, client) })
		}
	}
	shut := make(chan error, 1)
	if rand.IntN(2) == 0 {
		go func() {
			await.Pause(time.Duration(rand.IntN(100)) * time.Millisecond)
			shut <- g.Shutdown(context.Background())
		}()
	} else {
		shut <- nil
	}
	all.Wait()
	check.OK(t, <-shut)
	check.OK(t, g.Shutdown(context.Background()))
	if s := g.Stats(); s.Conns != 0 || s.QueuedBytes != 0 || s.Parked != 0 || s.Running != 0 || s.Panics != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// stressOne serves one stream, and checks what its peer has received.
func stressOne(t *testing.T, g *Streams, server, client net.Conn) {
	x := &stressStream{closed: make(chan struct{})}
	s := &Stream{Value: x}
	if err := g.Open(s, server); err != nil {
		server.Close()
		client.Close()
		return
	}
	read, sent := make(chan error, 1), make(chan struct{})
	go func() { read <- stressRead(x, client) }()
	go func() {
		defer close(sent)
		stressSend(x, client)
	}()
	s.Start(nil, nil)
	var writers sync.WaitGroup
	for w := range stressWriters {
		writers.Go(func() { stressWrite(s, x, w) })
	}
	writers.Wait()
	reads := true
	switch rand.IntN(4) {
	case 0:
		x.graceful.Store(s.Close(nil) == nil)
	case 1:
		s.Abort(nil)
	case 2:
		client.Close()
		reads = false
	case 3:
		x.graceful.Store(s.Close(nil) == nil)
		s.CloseWrite()
	}
	<-x.closed
	err := <-read
	client.Close()
	<-sent
	_, half := server.(parking.CloseWriter) // others are reset if they are closed while their peers send
	all := half && reads && x.graceful.Load() && err == io.EOF
	for w := range stressWriters {
		got, accepted := x.received[w], x.accepted[w].Load()
		if got > accepted || got < accepted && all {
			t.Errorf("%T: %d of %d messages of writer %d received, graceful %t, %v, closed %v", server, got,
				accepted, w, x.graceful.Load(), err, x.err)
		}
	}
	if got, sent := x.inputGot.Load(), x.inputSent.Load(); got > sent {
		t.Errorf("%d bytes of %d were received", got, sent)
	}
	if err != nil && errors.Is(err, conntest.ErrBytes) {
		t.Errorf("%T: %v", server, err)
	}
}

// stressWrite writes messages in all ways.
func stressWrite(s *Stream, x *stressStream, w int) {
	for range rand.IntN(60) {
		n := 1 + rand.IntN(40)
		if rand.IntN(10) == 0 {
			n = 20 << 10
		}
		b := binary.BigEndian.AppendUint32([]byte{byte(w)}, uint32(x.accepted[w].Load()))
		b = binary.BigEndian.AppendUint32(b, uint32(n))
		b = append(b, bytes.Repeat([]byte{byte(w)}, n)...)
		var err error
		x.accepted[w].Add(1) // before it is received
		switch rand.IntN(3) {
		case 0:
			err = s.Write(b)
			clear(b)
		case 1:
			err = s.WriteShared(b)
		default:
			err = s.Writev(b[:3], b[3:])
		}
		if err != nil {
			x.accepted[w].Add(-1)
		}
		if rand.IntN(8) == 0 {
			await.Pause(time.Duration(rand.IntN(3)) * time.Millisecond)
		}
	}
}

// stressSend sends bytes until the connection ends.
func stressSend(x *stressStream, client net.Conn) {
	for range rand.IntN(50) {
		b := make([]byte, 1+rand.IntN(3000))
		from := x.inputSent.Load()
		for i := range b {
			b[i] = byte(from + int64(i))
		}
		x.inputSent.Add(int64(len(b)))
		if _, err := client.Write(b); err != nil {
			return
		}
		if rand.IntN(4) == 0 {
			await.Pause(time.Millisecond)
		}
	}
}

// stressRead reads messages until the end, slowly, and checks them.
func stressRead(x *stressStream, client net.Conn) error {
	client.SetReadDeadline(time.Now().Add(conntest.Timeout))
	var head [9]byte
	for {
		if rand.IntN(6) == 0 {
			await.Pause(time.Millisecond)
		}
		if _, err := io.ReadFull(client, head[:]); err != nil {
			return err
		}
		w, seq, n := head[0], binary.BigEndian.Uint32(head[1:]), binary.BigEndian.Uint32(head[5:])
		if w >= stressWriters || int64(seq) != x.received[w] || n > 20<<10 {
			return fmt.Errorf("%w: % x, want message %d", conntest.ErrBytes, head, x.received)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(client, b); err != nil {
			return err
		}
		if !bytes.Equal(b, bytes.Repeat([]byte{w}, int(n))) {
			return fmt.Errorf("%w in a message", conntest.ErrBytes)
		}
		x.received[w]++
	}
}
