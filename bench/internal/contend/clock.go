package contend

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpu returns the scheduler run time of all threads of this process.
func cpu() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano()
}

func switches() int64 {
	var r unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &r)
	return r.Nvcsw + r.Nivcsw
}

// A watch measures this process.
type watch struct {
	start         time.Time
	cpu, switches int64
}

func startWatch() watch { return watch{switches: switches(), start: time.Now(), cpu: cpu()} }

func (w watch) stop(ops int64) Outcome {
	used := cpu() - w.cpu
	return Outcome{
		Ops: float64(ops), CPU: float64(used), Elapsed: float64(time.Since(w.start)),
		Switches: float64(switches() - w.switches),
	}
}
