package server_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

var (
	seed  = flag.Uint64("server.seed", 0, "the first seed of TestRandom")
	seeds = flag.Int("server.seeds", 4, "how many seeds TestRandom tries")
)

// fickle echoes in every way that there is, by turns that a connection's own random numbers decide.
func fickle(c conn, buf []byte) error {
	rng := c.State.extra.(*rand.Rand)
	n, err := c.Read(buf[:1+rng.IntN(len(buf))])
	if err != nil {
		return err
	}
	switch rng.IntN(20) {
	case 0:
		b := bytes.Clone(buf[:n])
		c.Pause()
		go func() {
			c.Write(b)
			c.Resume()
		}()
		return nil
	case 1:
		if _, err := c.Write(buf[:n]); err != nil {
			return err
		}
		nc, err := c.Hijack()
		if err != nil {
			return nil // something is queued
		}
		most := rng.IntN(3)
		go func() {
			b := make([]byte, 1000)
			nc.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			for range most {
				n, err := nc.Read(b)
				if n > 0 {
					nc.Write(b[:n])
				}
				if err != nil {
					break // its end is told again
				}
			}
			c.Resume()
		}()
		return nil
	case 2:
		for i := range n { // in pieces
			if _, err := c.Write(buf[i : i+1]); err != nil {
				return err
			}
			if i == 20 {
				_, err := c.Write(buf[i+1 : n])
				return err
			}
		}
		return nil
	}
	_, err = c.Write(buf[:n])
	return err
}

// Random clients of random servers: every byte comes back, in order, unless somebody cut the connection.
func TestRandom(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		for i := range *seeds {
			s := *seed + uint64(i)
			t.Run(fmt.Sprint("seed=", s), func(t *testing.T) { random(t, backend, s) })
		}
	})
}

func random(t *testing.T, backend string, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	h := &handler{t: t, data: fickle}
	var mu sync.Mutex
	next := seed
	h.open = func(c conn) error {
		mu.Lock()
		defer mu.Unlock()
		next++
		c.State.extra = rand.New(rand.NewPCG(next, 2))
		return nil
	}
	s := &srv{Handler: h, Backend: backend, Workers: 1 + rng.IntN(4), Ports: rng.IntN(3),
		BufferSize: 1 + rng.IntN(1<<uint(rng.IntN(17))), WriteQueue: 2 + rng.IntN(1<<uint(1+rng.IntN(17)))}
	addr := start(t, s)
	l, err := net.Listen("unix", socketPath(t))
	if err != nil {
		t.Fatal(err)
	}
	serve(t, s, l)
	cut := rng.IntN(3) == 0
	var wg sync.WaitGroup
	for range 30 {
		r := rand.New(rand.NewPCG(rng.Uint64(), 3))
		wg.Go(func() {
			network, to := "tcp", addr
			if r.IntN(4) == 0 {
				network, to = "unix", l.Addr().String()
			}
			c, err := net.Dial(network, to)
			if err != nil {
				if !cut { // so early that it never saw the connection
					t.Error(err)
				}
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(soon))
			if lost := client(t, r, c); lost != "" && !cut {
				t.Error(lost)
			}
		})
	}
	if cut { // some are closed from outside
		for range 5 {
			c := h.conn(1 + rng.IntN(20))
			if rng.IntN(2) == 0 {
				c.Close()
			} else {
				c.Abort()
			}
		}
	}
	wg.Wait()
	wait(t, func() bool { return s.Stats().Conns == 0 })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.opens != 30 || h.closes != 30 {
		t.Errorf("%d opens, %d closes", h.opens, h.closes)
	}
	if st := s.Stats(); st.Panics+st.Refused+st.Idle+st.Slow+st.Overloads != 0 || st.Queued != 0 {
		t.Errorf("%+v", st)
	}
}

// client sends and receives as it likes, and checks that what comes back is what it sent.
// It returns what was lost of a connection that it did not cut itself.
func client(t *testing.T, r *rand.Rand, c net.Conn) (lost string) {
	sent := make([]byte, r.IntN(1<<uint(r.IntN(19))))
	for i := range sent {
		sent[i] = byte(r.Uint32())
	}
	reset, slow, rude := r.IntN(8) == 0, r.IntN(4) == 0, r.IntN(8) == 0
	pieces := rand.New(rand.NewPCG(r.Uint64(), 4))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for rest := sent; len(rest) > 0; {
			k := min(len(rest), 1+pieces.IntN(1<<uint(pieces.IntN(17))))
			if _, err := c.Write(rest[:k]); err != nil {
				return
			}
			rest = rest[k:]
		}
		switch {
		case reset:
			if tc, ok := c.(*net.TCPConn); ok {
				tc.SetLinger(0)
			}
			c.Close()
		case rude:
			c.Close()
		default:
			c.(interface{ CloseWrite() error }).CloseWrite()
		}
	}()
	got, buf := 0, make([]byte, 4096)
	for {
		if slow {
			time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
		}
		n, err := c.Read(buf)
		if got+n > len(sent) || !bytes.Equal(buf[:n], sent[got:got+n]) {
			t.Errorf("byte %d and what follows is wrong", got)
			break
		}
		if got += n; err != nil {
			if got < len(sent) && !reset && !rude {
				lost = fmt.Sprintf("%d of %d bytes came back, %v", got, len(sent), err)
			}
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Errorf("after %d of %d bytes: %v", got, len(sent), err)
			}
			break
		}
	}
	<-done
	return lost
}
