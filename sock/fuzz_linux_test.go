package sock_test

import (
	"bytes"
	"testing"

	"github.com/socknotify/socknotify/sock"
)

// Datagrams of any content are received unchanged and in order, each with its sender, and truncated to its buffer,
// whatever the sizes of the buffers of a batch.
func FuzzRecvBatch(f *testing.F) {
	f.Add([]byte{0, 1, 2, 200, 255}, []byte{64, 0, 1, 255})
	f.Add([]byte{}, []byte{1})
	f.Add([]byte{0, 0, 0}, []byte{})
	f.Add(bytes.Repeat([]byte{7}, 70), bytes.Repeat([]byte{6}, 70))
	var from [2]*sock.Socket
	for i := range from {
		var err error
		if from[i], err = sock.New(sock.UDP4); err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { from[i].Close() })
		must(f, from[i].Bind(sock.Loopback))
	}
	f.Fuzz(func(t *testing.T, sizes, rooms []byte) {
		to, err := sock.ListenUDP(sock.Loopback, sock.ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		sizes = sizes[:min(len(sizes), 50)] // more would not fit into the socket's buffer
		if len(rooms) == 0 {
			rooms = []byte{10}
		}
		content := func(i int) []byte {
			return bytes.Repeat([]byte{byte(i), byte(i >> 8), 0xff}, 3*int(sizes[i]))[:5*int(sizes[i])]
		}
		for i := range sizes {
			one := []sock.Message{{Buf: content(i), Addr: to.LocalAddr()}}
			for {
				if n, err := from[i%2].SendBatch(one); n == 1 {
					break
				} else if err != sock.ErrWouldBlock {
					t.Fatal(err)
				}
			}
		}
		for got := 0; got < len(sizes); {
			msgs := make([]sock.Message, len(rooms))
			for i := range msgs {
				msgs[i] = sock.Message{Buf: make([]byte, 4*int(rooms[i])), N: -1}
			}
			waitPoll(t, to, in)
			n, err := to.RecvBatch(msgs)
			if err != nil || n < 1 || n > min(len(msgs), sock.MaxBatch, len(sizes)-got) {
				t.Fatalf("%d of %d: %d, %v", got, len(sizes), n, err)
			}
			for i, m := range msgs {
				if i >= n {
					if m.N != -1 || m.Addr.IsValid() {
						t.Fatalf("message %d of %d was received: %+v", i, n, m)
					}
					continue
				}
				want := content(got + i)
				want = want[:min(len(want), len(m.Buf))]
				if m.N != len(want) || !bytes.Equal(m.Buf[:m.N], want) || m.Addr != from[(got+i)%2].LocalAddr() {
					t.Fatalf("datagram %d: %d bytes from %v, %q; want %d", got+i, m.N, m.Addr, m.Buf[:m.N], len(want))
				}
				if rest := m.Buf[m.N:]; len(bytes.TrimRight(rest, "\x00")) != 0 {
					t.Fatalf("datagram %d: written behind its end", got+i)
				}
			}
			got += n
		}
	})
}
