package debug

import (
	"net/http"
	"runtime/metrics"
	"time"

	"github.com/socknotify/socknotify/internal/debugdata"
)

// countProcess reads what Go's runtime counts, without stopping any goroutine.
func countProcess() debugdata.ProcessCounts {
	samples := []metrics.Sample{
		{Name: "/sched/goroutines:goroutines"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 {
		if samples[i].Value.Kind() != metrics.KindUint64 {
			return 0 // a later runtime may not have it
		}
		return samples[i].Value.Uint64()
	}
	return debugdata.ProcessCounts{
		Goroutines: value(0), Memory: value(1) - min(value(2), value(1)),
		Objects: value(3), Stacks: value(4), Collections: value(5),
	}
}

// sampleProcess adds a sample.
func (h *Handler) sampleProcess() {
	one := debugdata.ProcessSample{Time: time.Now(), ProcessCounts: countProcess()}
	h.process.add(func(number uint64) debugdata.ProcessSample {
		one.Number = number
		return one
	})
}

func (h *Handler) processView(r *http.Request, after string) (v debugdata.Process, err error) {
	from, err := parseAfter(r, after)
	if err != nil {
		return v, err
	}
	return debugdata.Process{
		Time: time.Now(), Observed: h.began, Counts: countProcess(), Samples: h.process.after(from),
	}, nil
}
