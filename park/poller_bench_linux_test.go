package park

import (
	"os"
	"testing"

	"github.com/socknotify/socknotify/internal/test/check"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/internal/test/idling"
)

// BenchmarkArrival measures the cost of keeping a parked connection in Go's poller. A byte arrives on a socket that
// is registered with the port alone, and on one that is also in Go's poller. "busy": one goroutine sends, dequeues,
// receives and enables again, and never blocks. "asleep": two goroutines send each other the byte, and each blocks
// until it arrives. cpu-ns/op is the CPU time of the whole process per round trip, including threads that wake
// without need.
func BenchmarkArrival(b *testing.B) {
	for _, also := range []bool{false, true} {
		name := "port"
		if also {
			name = "port and Go's poller"
		}
		b.Run("busy/"+name, func(b *testing.B) {
			x, y := end{}, end{}
			x.fd, y.fd = socketpair(b, also)
			x.open(b)
			before := idling.CPU()
			for b.Loop() {
				x.port.Process(x.regs, nil, 0)
				unix.Write(y.fd, x.buf[:1])
				x.port.Process(nil, x.ready, -1)
				unix.Read(x.fd, x.buf)
			}
			b.ReportMetric(float64(idling.CPU()-before)/float64(b.N), "cpu-ns/op")
		})
		b.Run("asleep/"+name, func(b *testing.B) {
			x, y := end{}, end{}
			x.fd, y.fd = socketpair(b, also)
			x.open(b)
			y.open(b)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for y.round() {
				}
			}()
			before := idling.CPU()
			for b.Loop() {
				unix.Write(x.fd, x.buf[:1])
				x.round()
			}
			b.ReportMetric(float64(idling.CPU()-before)/float64(b.N), "cpu-ns/op")
			unix.Shutdown(x.fd, unix.SHUT_WR)
			<-done
		})
	}
}

type end struct {
	fd    int
	port  *socknotify.Port[int]
	regs  []socknotify.Registration[int]
	ready []socknotify.Notification[int]
	buf   []byte
}

func (e *end) open(b *testing.B) {
	var err error
	e.port, err = socknotify.New[int]()
	check.OK(b, err)
	b.Cleanup(func() { e.port.Close() })
	e.regs = []socknotify.Registration[int]{{
		Handle: uintptr(e.fd), Key: 1, Op: socknotify.OpEnable, Filter: socknotify.EventIn | socknotify.EventHangup,
		Trigger: socknotify.TriggerLevel | socknotify.TriggerOneShot,
	}}
	e.ready, e.buf = make([]socknotify.Notification[int], 1), make([]byte, 16)
}

// round waits for a byte; the goroutine of the other end sends it back.
func (e *end) round() bool {
	e.port.Process(e.regs, e.ready, -1)
	n, _ := unix.Read(e.fd, e.buf)
	if n == 1 && e.buf[0] == 0 {
		e.buf[0] = 1 // the answer
		unix.Write(e.fd, e.buf[:1])
	}
	e.buf[0] = 0
	return n == 1
}

func socketpair(b *testing.B, inPoller bool) (x, y int) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	check.OK(b, err)
	for _, fd := range ends {
		if !inPoller {
			b.Cleanup(func() { unix.Close(fd) })
			continue
		}
		f := os.NewFile(uintptr(fd), "socket")      // non-blocking: the poller watches it
		check.OK(b, f.SetReadDeadline(unwrap.Past)) // fails if the poller does not watch it
		b.Cleanup(func() { f.Close() })
	}
	return ends[0], ends[1]
}
