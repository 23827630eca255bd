package overlapped

import (
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
)

// Reads and writes of what is in the page cache, of what is not (cold), and past it (direct).
func BenchmarkFile(b *testing.B) {
	for _, c := range []struct {
		name            string
		size            int
		write           bool
		cold            bool
		flags, inFlight int
	}{
		{"read/4K/1", 4 << 10, false, false, 0, 1},
		{"read/4K/64", 4 << 10, false, false, 0, 64},
		{"read/64K/1", 64 << 10, false, false, 0, 1},
		{"read/1M/1", 1 << 20, false, false, 0, 1},
		{"read/1M/16", 1 << 20, false, false, 0, 16},
		{"cold/4K/1", 4 << 10, false, true, 0, 1},
		{"cold/4K/64", 4 << 10, false, true, 0, 64},
		{"direct/4K/1", 4 << 10, false, false, unix.O_DIRECT, 1},
		{"direct/4K/64", 4 << 10, false, false, unix.O_DIRECT, 64},
		{"directWrite/4K/1", 4 << 10, true, false, unix.O_DIRECT, 1},
		{"directWrite/4K/64", 4 << 10, true, false, unix.O_DIRECT, 64},
	} {
		b.Run(c.name, func(b *testing.B) {
			const blocks = 256
			f := benchFile(b, blocks*c.size, c.flags)
			if c.cold {
				unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM) // read nothing ahead
			}
			p, err := socknotify.New[int]()
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { p.Close() })
			ops, bufs := make([]Op[int], c.inFlight), aligned(c.inFlight, c.size)
			turn := 0
			start := func(i int) {
				turn++
				off := int64(turn % blocks * c.size)
				if c.cold && off == 0 {
					unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
				}
				call := ReadAt[int]
				if c.write {
					call = WriteAt[int]
				}
				if err := call(p, f, i, bufs[i], off, &ops[i]); err != nil {
					b.Fatal(err)
				}
			}
			for i := range ops {
				start(i)
			}
			var out [64]socknotify.Notification[int]
			b.ReportAllocs()
			cpu, done := processTime(b), 0
			for b.Loop() {
				n, err := p.Process(nil, out[:], -1)
				if err != nil {
					b.Fatal(err)
				}
				for _, nt := range out[:n] {
					if n, err := Of(&nt).Result(); n != c.size || err != nil {
						b.Fatal(n, err)
					}
					start(nt.Key)
				}
				done += n
			}
			b.ReportMetric(float64(processTime(b)-cpu)/float64(done), "cpu-ns/each")
			b.ReportMetric(float64(b.Elapsed())/float64(done), "ns/each")
		})
	}
}

func benchFile(b *testing.B, size, flags int) *os.File {
	f, err := os.OpenFile(b.TempDir()+"/file", os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.Write(make([]byte, size))
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		f, err = os.OpenFile(f.Name(), os.O_RDWR|flags, 0)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}

// aligned makes buffers that suit O_DIRECT.
func aligned(n, size int) [][]byte {
	const page = 4 << 10
	all := make([]byte, n*size+page)
	if at := uintptr(unsafe.Pointer(&all[0])) % page; at != 0 {
		all = all[page-at:]
	}
	bufs := make([][]byte, n)
	for i := range bufs {
		bufs[i] = all[i*size : (i+1)*size]
	}
	return bufs
}

func processTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
