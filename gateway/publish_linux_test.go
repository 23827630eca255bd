package gateway

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/idling"
)

// BenchmarkPublish publishes events of 100 bytes to durable topics of a single node, from one publisher and from 64, with
// the files synced every two minutes and before each acknowledgement. The CPU time is that of the whole node.
func BenchmarkPublish(b *testing.B) {
	for _, sync := range []string{"interval", "always"} {
		for _, publishers := range []int{1, 64} {
			b.Run(fmt.Sprintf("sync=%s/publishers=%d", sync, publishers), func(b *testing.B) {
				node := newNode(b, NodeConfig{Store: b.TempDir(), SyncAlways: sync == "always"})
				s := newSiteOn(b, node, Config{})
				data := []byte(strings.Repeat("x", 100))
				s.publish("warm", "up")
				var n atomic.Int64
				b.SetParallelism(max(publishers/runtime.GOMAXPROCS(0), 1))
				cpu, began := idling.CPU(), time.Now()
				b.ResetTimer()
				publish := func() {
					if _, err := s.Publish(b.Context(), fmt.Sprint("p.", n.Add(1)%100), data, ""); err != nil {
						b.Error(err)
					}
				}
				if publishers == 1 {
					for range b.N {
						publish()
					}
				} else {
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							publish()
						}
					})
				}
				b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "events/s")
				b.ReportMetric(float64(b.N)/(float64(idling.CPU()-cpu)/1e9), "events/CPU-s")
			})
		}
	}
}
