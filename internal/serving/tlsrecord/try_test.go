package tlsrecord

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
)

// A meager is a Socket that gives and takes a random part, or nothing.
type meager struct{ net.Conn }

func (m meager) Write(b []byte) (int, error) {
	if n := rand.IntN(len(b) + 1); rand.IntN(3) > 0 {
		return m.Conn.Write(b[:n])
	}
	return 0, nil
}

func (m meager) Read(b []byte) (int, error) {
	m.SetReadDeadline(time.Now().Add(time.Millisecond))
	n, err := m.Conn.Read(b[:1+rand.IntN(len(b))])
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// Data arrives whole and in order if the socket takes parts of records, also with Writes that wait
// and answers to KeyUpdates between the calls.
func TestTryWrite(t *testing.T) {
	t.Parallel()
	c, client := rawPair(t)
	sent := make([]byte, 1<<20)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	done := make(chan error, 1)
	var got []byte
	go func() { done <- client.receive(&got) }()
	socket, buf, updates := meager{c.Conn}, make([]byte, 100), 0
	for rest := sent; len(rest) > 0; {
		var n int
		var err error
		switch part := rest[:rand.IntN(min(len(rest), 50_000)+1)]; rand.IntN(8) {
		case 0:
			n, err = c.Write(part)
		case 1:
			if updates++; updates <= 50 {
				client.Write(append(client.update(1), client.data("x")...))
			}
			_, err = c.TryRead(buf, socket)
		default:
			if n, err = c.TryWrite(part, socket); (n < len(part)) != (c.Unsent() > 0) && len(part) > 0 {
				t.Fatalf("%d of %d bytes, %d unsent", n, len(part), c.Unsent())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes, %v", len(got), len(sent), err)
	}
}

// receive receives data until the close_notify.
func (c *raw) receive(got *[]byte) error {
	for header := make([]byte, headerSize); ; {
		if _, err := io.ReadFull(c.Conn, header); err != nil {
			return err
		}
		n, err := c.r.Length(header)
		if err != nil {
			return err
		}
		record := append(bytes.Clone(header), make([]byte, n-headerSize)...)
		if _, err := io.ReadFull(c.Conn, record[headerSize:]); err != nil {
			return err
		}
		data, err := c.r.Open(nil, record)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		*got = append(*got, data...)
	}
}

// TryRead returns what has arrived in whole records, nothing where a part is missing, and the end of
// the stream.
func TestTryRead(t *testing.T) {
	t.Parallel()
	c, client := rawPair(t)
	sent := make([]byte, 300_000)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	go func() {
		var wire []byte
		for rest := sent; len(rest) > 0; {
			n := 1 + rand.IntN(min(len(rest), MaxPlaintext))
			wire = append(wire, client.data(string(rest[:n]))...)
			rest = rest[n:]
			if rand.IntN(5) == 0 {
				wire = append(wire, client.update(0)...)
			}
		}
		client.Write(append(wire, client.record(typeAlert, "\x01\x00")...))
	}()
	var got []byte
	socket, buf := meager{c.Conn}, make([]byte, 32<<10)
	for {
		n, err := c.TryRead(buf, socket)
		got = append(got, buf[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes", len(got), len(sent))
	}
	if c.pump.buf != nil {
		t.Error("the buffer is kept")
	}
}

// CloseWrite sends the rest of a record before the close_notify.
func TestTryThenClose(t *testing.T) {
	t.Parallel()
	c, client := rawPair(t)
	if n, err := c.TryWrite([]byte("hello"), halved{c.Conn}); n != 4 || err != nil || c.Unsent() == 0 {
		t.Fatal(n, err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var got []byte
	if err := client.receive(&got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// A failed socket is an error for good.
func TestTryFails(t *testing.T) {
	t.Parallel()
	c, client := rawPair(t)
	if n, err := c.TryWrite(make([]byte, 1000), halved{c.Conn}); n != 999 || err != nil || c.Unsent() == 0 {
		t.Fatal(n, err)
	}
	client.Conn.Close()
	for _, s := range []Socket{broken{}, halved{c.Conn}} {
		if _, err := c.TryWrite(make([]byte, 1), s); !errors.Is(err, os.ErrInvalid) {
			t.Error(err)
		}
	}
	if _, err := c.TryRead(make([]byte, 1), broken{}); !errors.Is(err, os.ErrInvalid) {
		t.Error(err)
	}
	c.Close()
	if n, err := c.TryWrite(nil, broken{}); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Error(n, err)
	}
}

// halved takes half of what it gets.
type halved struct{ net.Conn }

func (h halved) Write(b []byte) (int, error) { return h.Conn.Write(b[:len(b)/2]) }

type broken struct{}

func (broken) Read([]byte) (int, error)  { return 0, os.ErrInvalid }
func (broken) Write([]byte) (int, error) { return 0, os.ErrInvalid }
