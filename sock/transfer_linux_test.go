package sock_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/socknotify/socknotify/sock"
)

// keystream returns n bytes of a stream that is different for each marker and does not repeat. So lost, duplicated,
// reordered and foreign bytes are detected.
func keystream(marker, at, n int) []byte {
	b := make([]byte, n)
	fillKeystream(b, marker, at)
	return b
}

func fillKeystream(b []byte, marker, at int) {
	for i := range b {
		x := uint64(at+i)*0x9E3779B97F4A7C15 ^ uint64(marker)*0xD6E8FEB86659FD93
		x ^= x >> 29
		b[i] = byte(x * 0xBF58476D1CE4E5B9 >> 56)
	}
}

// Data that is sent in parts, as the system has room, arrives unchanged.
func TestTransfer(t *testing.T) {
	const size = 3 << 20
	data := keystream(7, 0, size)
	path := filepath.Join(t.TempDir(), "data")
	must(t, os.WriteFile(path, data, 0o600))
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ways := map[string]func(s *sock.Socket, at int) (int, error){
		"Send": func(s *sock.Socket, at int) (int, error) { return s.Send(data[at:]) },
		"SendV": func(s *sock.Socket, at int) (int, error) {
			var bufs [][]byte
			for part := data[at:min(size, at+maxIO+1000)]; len(part) > 0; {
				n := min(len(part), 1+len(bufs)*37)
				bufs, part = append(bufs, part[:n]), part[n:]
			}
			return s.SendV(bufs)
		},
		"SendFile": func(s *sock.Socket, at int) (int, error) { return s.SendFile(file, int64(at), size-at) },
	}
	for name, send := range ways {
		t.Run(name, func(t *testing.T) {
			forEachStream(t, func(t *testing.T, k kind) { transfer(t, k, data, send) })
		})
	}
}

func transfer(t *testing.T, k kind, data []byte, send func(s *sock.Socket, at int) (int, error)) {
	a, b := k.pair(t)
	must(t, a.SetWriteBuffer(64<<10))
	buf := make([]byte, 100_000)
	blocked, parts := 0, 0
	for sent, received := 0, 0; received < len(data); {
		for sent < len(data) {
			n, err := send(a, sent)
			if err == sock.ErrWouldBlock {
				blocked++
				break
			}
			if err != nil || n <= 0 || n > len(data)-sent {
				t.Fatalf("sent %d, %v", n, err)
			}
			sent += n
			if n < maxIO && sent < len(data) {
				parts++
			}
		}
		waitPoll(t, b, in)
		n, err := b.Recv(buf)
		if err != nil || !bytes.Equal(buf[:n], data[received:received+n]) {
			t.Fatalf("at %d: Recv = %d, %v", received, n, err)
		}
		received += n
	}
	if blocked == 0 || parts == 0 {
		t.Errorf("blocked %d times, sent in part %d times", blocked, parts)
	}
}
