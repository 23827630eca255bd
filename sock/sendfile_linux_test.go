package sock_test

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/sock"
)

func fileOf(t *testing.T, data string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, []byte(data), 0o600))
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestSendFile(t *testing.T) {
	const data = "0123456789"
	f := fileOf(t, data)
	if _, err := f.Seek(3, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		offset int64
		n      int
		want   string
		err    error
	}{
		{"all", 0, 10, data, nil},
		{"a part", 2, 5, "23456", nil},
		{"the end", 9, 1, "9", nil},
		{"more than there is", 7, 100, "789", nil},
		{"as much as can be", 5, math.MaxInt, "56789", nil},
		{"at the end", 10, 1, "", io.EOF},
		{"behind the end", 1 << 40, 5, "", io.EOF},
		{"nothing", 4, 0, "", nil},
		{"nothing at the end", 10, 0, "", nil},
		{"less than nothing", 0, -1, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			forEachStream(t, func(t *testing.T, k kind) {
				a, b := k.pair(t)
				n, err := a.SendFile(f, c.offset, c.n)
				if n != len(c.want) || err != c.err {
					t.Fatalf("%d, %v", n, err)
				}
				a.Close()
				waitPoll(t, b, ended)
				got, err := io.ReadAll(reader{b})
				if string(got) != c.want || err != nil {
					t.Errorf("%q, %v", got, err)
				}
				if at, err := f.Seek(0, io.SeekCurrent); at != 3 || err != nil {
					t.Errorf("the position of the file is %d, %v", at, err)
				}
			})
		})
	}
}

// A reader is an io.Reader that calls Recv.
type reader struct{ *sock.Socket }

func (r reader) Read(b []byte) (int, error) { return r.Recv(b) }

func TestSendFileFails(t *testing.T) {
	shut := fileOf(t, "data")
	shut.Close()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	forEachStream(t, func(t *testing.T, k kind) {
		a, b := k.pair(t)
		for _, c := range []struct {
			name   string
			f      *os.File
			offset int64
			cause  error
		}{
			{"closed", shut, 0, os.ErrClosed},
			{"none", nil, 0, os.ErrInvalid},
			{"no file", dir, 0, unix.EINVAL},
			{"before its beginning", fileOf(t, "data"), -1, unix.EINVAL},
		} {
			n, err := a.SendFile(c.f, c.offset, 4)
			if n != 0 || err == nil {
				t.Errorf("%s: %d, %v", c.name, n, err)
			}
			wantError(t, err, "sendfile", a.Handle(), c.cause)
		}
		if _, err := b.Recv(make([]byte, 1)); err != sock.ErrWouldBlock {
			t.Errorf("the peer has received %v", err)
		}
		must(t, a.Shutdown(sock.ShutWrite))
		_, err := a.SendFile(fileOf(t, "data"), 0, 4)
		wantError(t, err, "sendfile", a.Handle(), unix.EPIPE)
	})
}

func TestSendFileBlocks(t *testing.T) {
	f := fileOf(t, string(make([]byte, 8<<20)))
	forEachStream(t, func(t *testing.T, k kind) {
		a, _ := k.pair(t)
		for at := int64(0); ; {
			n, err := a.SendFile(f, at, 8<<20)
			if err == sock.ErrWouldBlock && n == 0 {
				return
			}
			if err != nil || n <= 0 || n > 1<<20 { // at most maxSendFile
				t.Fatalf("at %d: %d, %v", at, n, err)
			}
			at += int64(n)
		}
	})
}
