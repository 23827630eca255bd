package overlapped

import (
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/sock"
)

// A batchConn is a socket of the tests below, and the operations on it.
type batchConn struct {
	s, peer *sock.Socket
	buf     [4]byte
	recv    Op[*batchConn]
}

func batchConns(t *testing.T, n int) []*batchConn {
	t.Helper()
	var conns []*batchConn
	for range n {
		c := new(batchConn)
		c.s, c.peer = newPair(t)
		conns = append(conns, c)
	}
	return conns
}

// receive starts a receive on every socket.
func receive(t *testing.T, p *socknotify.Port[*batchConn], conns []*batchConn) {
	t.Helper()
	var ops []Request[*batchConn]
	for _, c := range conns {
		ops = append(ops, RecvRequest(c.s, c, c.buf[:], &c.recv))
	}
	begun(t, p, ops)
}

func begun(t *testing.T, p *socknotify.Port[*batchConn], ops []Request[*batchConn]) {
	t.Helper()
	if _, err := Process(p, ops, nil, 0); err != nil {
		t.Fatal(err)
	}
	for i := range ops {
		if ops[i].Result != nil {
			t.Fatal(ops[i].Result)
		}
	}
}

// each waits for so many completions.
func each(t *testing.T, p *socknotify.Port[*batchConn], n int, f func(nt socknotify.Notification[*batchConn])) {
	t.Helper()
	out := make([]socknotify.Notification[*batchConn], n)
	for n > 0 {
		k, err := p.Process(nil, out[:n], soon)
		if err != nil {
			t.Fatalf("%v; %d are missing", err, n)
		}
		for _, nt := range out[:k] {
			f(nt)
		}
		n -= k
	}
}

// A socket that another port has registered in between, or that was closed, harms no other entry.
func TestBatchOfClosedAndOpen(t *testing.T) {
	onEachOf(t, func(t *testing.T, p *socknotify.Port[*batchConn], h *backendtest.Hooked) {
		conns := batchConns(t, 8)
		receive(t, p, conns)
		for _, c := range conns[:4] {
			c.s.Close()
		}
		each(t, p, 4, func(nt socknotify.Notification[*batchConn]) {
			if _, err := Of(&nt).Result(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("completed with %v", err)
			}
		})
		fresh := batchConns(t, 4) // of the same numbers, maybe
		receive(t, p, fresh)
		for _, c := range slices.Concat(conns[4:], fresh) {
			send(t, c.peer)
		}
		each(t, p, 8, func(nt socknotify.Notification[*batchConn]) {
			if n, err := Of(&nt).Result(); n != 1 || err != nil {
				t.Errorf("completed with %d, %v", n, err)
			}
		})
	})
}
