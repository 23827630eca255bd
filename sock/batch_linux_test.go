package sock_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/sock"
)

// messages returns n messages to an address, with different texts and lengths.
func messages(n int, to netip.AddrPort) []sock.Message {
	msgs := make([]sock.Message, n)
	for i := range msgs {
		msgs[i] = sock.Message{Buf: []byte(fmt.Sprint("message ", i)), Addr: to, N: -1}
	}
	return msgs
}

// buffers returns n messages with buffers of the given size.
func buffers(n, size int) []sock.Message {
	msgs := make([]sock.Message, n)
	for i := range msgs {
		msgs[i] = sock.Message{Buf: make([]byte, size), N: -1}
	}
	return msgs
}

func TestBatch(t *testing.T) {
	forEachUDP(t, func(t *testing.T, a, b *sock.Socket) {
		for _, n := range []int{1, 2, 63, 64, 65, 100} {
			sent, got := messages(n, b.LocalAddr()), buffers(n, 64)
			for from := 0; from < n; {
				k, err := sendBatch(a, sent[from:])
				if k != min(n-from, sock.MaxBatch) || err != nil {
					t.Fatalf("%d of %d: SendBatch = %d, %v", n-from, n, k, err)
				}
				if from += k; from < n && sent[from].N != -1 {
					t.Errorf("message %d was not sent, but has N %d", from, sent[from].N)
				}
			}
			for from := 0; from < n; {
				waitPoll(t, b, in)
				k, err := b.RecvBatch(got[from:])
				if k <= 0 || k > min(n-from, sock.MaxBatch) || err != nil {
					t.Fatalf("%d of %d: RecvBatch = %d, %v", n-from, n, k, err)
				}
				if from += k; from < n && got[from].N != -1 {
					t.Errorf("message %d was not received, but has N %d", from, got[from].N)
				}
			}
			for i, m := range got {
				if string(m.Buf[:m.N]) != string(sent[i].Buf) || m.Addr != a.LocalAddr() || sent[i].N != len(sent[i].Buf) {
					t.Fatalf("message %d: %q from %v; sent %d", i, m.Buf[:m.N], m.Addr, sent[i].N)
				}
			}
			if k, err := b.RecvBatch(got); k != 0 || err != sock.ErrWouldBlock || got[0].N != len(sent[0].Buf) {
				t.Errorf("then RecvBatch = %d, %v", k, err)
			}
		}
		for _, none := range [][]sock.Message{nil, {}} {
			if k, err := a.SendBatch(none); k != 0 || err != nil {
				t.Errorf("SendBatch of nothing = %d, %v", k, err)
			}
			if k, err := a.RecvBatch(none); k != 0 || err != nil {
				t.Errorf("RecvBatch into nothing = %d, %v", k, err)
			}
		}
	})
}

// A call returns the datagrams that have arrived, and does not wait for more.
func TestRecvBatchPartial(t *testing.T) {
	forEachUDP(t, func(t *testing.T, a, b *sock.Socket) {
		for range 2 {
			if k, err := sendBatch(a, messages(3, b.LocalAddr())); k != 3 || err != nil {
				t.Fatal(k, err)
			}
			total := 0
			for got := buffers(64, 64); total < 3; {
				waitPoll(t, b, in)
				k, err := b.RecvBatch(got)
				if err != nil {
					t.Fatal(err)
				}
				total += k
			}
			if total != 3 {
				t.Errorf("%d of 3", total)
			}
		}
	})
}

// If a datagram is longer than its buffer, the rest is lost; the other messages are not affected. An empty datagram
// is a message.
func TestRecvBatchTruncates(t *testing.T) {
	forEachUDP(t, func(t *testing.T, a, b *sock.Socket) {
		msgs := messages(5, b.LocalAddr())
		msgs[2].Buf = nil
		if k, err := sendBatch(a, msgs); k != 5 || err != nil {
			t.Fatal(k, err)
		}
		got := buffers(5, 64)
		got[1].Buf, got[3].Buf = got[1].Buf[:4:4], nil
		for from := 0; from < 5; {
			waitPoll(t, b, in)
			k, err := b.RecvBatch(got[from:])
			if err != nil {
				t.Fatal(err)
			}
			from += k
		}
		for i, want := range []string{"message 0", "mess", "", "", "message 4"} {
			if m := got[i]; string(m.Buf[:m.N]) != want || m.Addr != a.LocalAddr() {
				t.Errorf("%d: %q from %v, want %q", i, m.Buf[:m.N], m.Addr, want)
			}
		}
	})
}

// The messages of one call may have different destinations, including the connected peer.
// A datagram that came before SetPacketInfo says where it came to as well: a server may be asked
// between its bind and its first receive.
func TestPacketInfoOfEarlier(t *testing.T) {
	for _, network := range []sock.Network{sock.UDP4, sock.UDP6} {
		s, err := sock.New(network)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		on, asked := netip.IPv4Unspecified(), netip.MustParseAddr("127.0.0.2")
		if network == sock.UDP6 {
			on, asked = netip.IPv6Unspecified(), sock.Loopback6.Addr()
		}
		if err := s.Bind(netip.AddrPortFrom(on, 0)); err != nil {
			t.Fatal(err)
		}
		to := netip.AddrPortFrom(asked, s.LocalAddr().Port())
		c, err := sock.New(network)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SendTo([]byte("early"), to); err != nil {
			t.Fatal(err)
		}
		waitPoll(t, s, in)
		if err := s.SetPacketInfo(true); err != nil {
			t.Fatal(err)
		}
		got := buffers(2, 64)
		if n, err := s.RecvBatch(got); n != 1 || err != nil || got[0].Local != asked {
			t.Errorf("%v: %d, %v, came to %v; want %v", network, n, err, got[0].Local, asked)
		}
	}
}

func TestSendBatchAddresses(t *testing.T) {
	forEachUDP(t, func(t *testing.T, a, b *sock.Socket) {
		n := sock.NetworkOf(a.LocalAddr(), sock.UDP4, sock.UDP6)
		home := netip.AddrPortFrom(a.LocalAddr().Addr(), 0)
		peer, other := b, bound(t, n, home)
		must(t, a.Connect(peer.LocalAddr()))
		msgs := messages(5, netip.AddrPort{})
		msgs[1].Addr, msgs[3].Addr, msgs[4].Addr = other.LocalAddr(), peer.LocalAddr(), other.LocalAddr()
		// Repeat the call, because state of the first call must not affect the second.
		for range 2 {
			if k, err := sendBatch(a, msgs); k != 5 || err != nil {
				t.Fatal(k, err)
			}
			for s, texts := range map[*sock.Socket]string{peer: "message 0,message 2,message 3", other: "message 1,message 4"} {
				for _, want := range strings.Split(texts, ",") {
					wantReceive(t, s, 64, want)
				}
			}
			for i := range msgs {
				msgs[i].N = -1
			}
		}
	})
}

// Batches on connected sockets and of both address families alternate. No state of one call is left in the next.
func TestBatchReuse(t *testing.T) {
	needV6(t)
	for range 3 {
		for _, on := range []netip.AddrPort{sock.Loopback, sock.Loopback6} {
			a, b := udpOn(t, on)
			sent, got := messages(3, netip.AddrPort{}), buffers(3, 64)
			if k, err := sendBatch(a, sent); k != 3 || err != nil {
				t.Fatal(k, err)
			}
			for from := 0; from < 3; {
				waitPoll(t, b, in)
				k, err := b.RecvBatch(got[from:])
				if err != nil {
					t.Fatal(err)
				}
				from += k
			}
			for i, m := range got {
				if m.Addr != a.LocalAddr() || string(m.Buf[:m.N]) != string(sent[i].Buf) {
					t.Errorf("%q from %v, not %v", m.Buf[:m.N], m.Addr, a.LocalAddr())
				}
			}
		}
	}
}

// A message that cannot be sent ends the batch before it, and the next call returns its error.
func TestSendBatchErrorInMiddle(t *testing.T) {
	forEachUDP(t, func(t *testing.T, a, b *sock.Socket) {
		for _, c := range []struct {
			name  string
			spoil func(m *sock.Message)
			cause error // nil: any
		}{
			{"no peer", func(m *sock.Message) { m.Addr = netip.AddrPort{} }, unix.EDESTADDRREQ},
			{"no address, but a port", func(m *sock.Message) { m.Addr = netip.AddrPortFrom(netip.Addr{}, 7) }, unix.EDESTADDRREQ},
			{"no such zone", func(m *sock.Message) { m.Addr = netip.MustParseAddrPort("[fe80::1%none]:7") }, nil},
			{"port 0", func(m *sock.Message) { m.Addr = netip.AddrPortFrom(m.Addr.Addr(), 0) }, unix.EINVAL},
			{"too large", func(m *sock.Message) { m.Buf = make([]byte, 1<<17) }, unix.EMSGSIZE},
		} {
			for _, at := range []int{0, 1, 4} {
				msgs := messages(5, b.LocalAddr())
				c.spoil(&msgs[at])
				k, err := 0, error(nil)
				if at > 0 {
					if k, err = sendBatch(a, msgs); k != at || err != nil {
						t.Errorf("%s at %d: SendBatch = %d, %v", c.name, at, k, err)
					}
				}
				k, err = a.SendBatch(msgs[at:])
				if k != 0 || msgs[at].N != -1 {
					t.Errorf("%s at %d: then SendBatch = %d, %v", c.name, at, k, err)
				}
				wantError(t, err, "sendmmsg", a.Handle(), c.cause)
				for i := range at {
					if got := receive(t, b, 64); got != string(msgs[i].Buf) {
						t.Errorf("%s at %d: %q", c.name, at, got)
					}
				}
				if _, err := b.Recv(make([]byte, 64)); err != sock.ErrWouldBlock {
					t.Errorf("%s at %d: more messages were sent: %v", c.name, at, err)
				}
			}
		}
	})
}

func TestUnixBatch(t *testing.T) {
	a, b := unixPair(t, true)
	if k, err := b.RecvBatch(buffers(2, 8)); k != 0 || err != sock.ErrWouldBlock {
		t.Errorf("RecvBatch = %d, %v", k, err)
	}
	total := 0
	for {
		k, err := a.SendBatch(buffers(50, 2000))
		if err == sock.ErrWouldBlock && k == 0 {
			break
		}
		if err != nil || k == 0 {
			t.Fatal(k, err)
		}
		total += k
	}
	for received := 0; received < total; {
		msgs := buffers(100, 4000)
		k, err := b.RecvBatch(msgs)
		if err != nil {
			t.Fatalf("after %d of %d: %v", received, total, err)
		}
		for _, m := range msgs[:k] {
			if m.N != 2000 || m.Addr.IsValid() {
				t.Fatalf("%d bytes from %v", m.N, m.Addr)
			}
		}
		received += k
	}
	b.Close()
	k, err := a.SendBatch(buffers(3, 1))
	if k != 0 || !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("without a peer: %d, %v", k, err)
	}
}
