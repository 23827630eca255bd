package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/internal/test/idling"
)

// BenchmarkPublish publishes events of 100 bytes to durable topics of a single node, from one publisher and from 64, with
// the files synced every two minutes and before each acknowledgement. The CPU time is that of the whole node.
func BenchmarkPublish(b *testing.B) {
	for _, syncs := range []string{"interval", "always"} {
		for _, publishers := range []int{1, 64} {
			b.Run(fmt.Sprintf("sync=%s/publishers=%d", syncs, publishers), func(b *testing.B) {
				node := newNode(b, NodeConfig{Store: b.TempDir(), SyncAlways: syncs == "always"})
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

// BenchmarkShards publishes events of 100 bytes to 1,000 topics over 1, 2 and 4 shards, from 256 publishers, to a single node
// and to a cluster of three in this process, with the files synced every two minutes and before each acknowledgement. The
// CPU time is that of all nodes and publishers. Give the number of events, as -benchtime 30000x, so that nodes start once.
func BenchmarkShards(b *testing.B) {
	for _, syncs := range []string{"interval", "always"} {
		for _, members := range []int{1, 3} {
			for _, shards := range []int{1, 2, 4} {
				b.Run(fmt.Sprintf("sync=%s/nodes=%d/shards=%d", syncs, members, shards), func(b *testing.B) {
					if b.N == 1 { // the first call shows how long one takes, which is not worth a cluster
						return
					}
					sites := newShardSites(b, members, shards, syncs == "always")
					data := []byte(strings.Repeat("x", 100))
					for i := range 100 {
						sites[i%members].publish(fmt.Sprint("warm.", i), "up")
					}
					var n, publishers atomic.Int64
					b.SetParallelism(max(256/runtime.GOMAXPROCS(0), 1))
					cpu, began := idling.CPU(), time.Now()
					b.ResetTimer()
					b.RunParallel(func(pb *testing.PB) {
						s := sites[publishers.Add(1)%int64(members)]
						for pb.Next() {
							if _, err := s.Publish(b.Context(), fmt.Sprint("p.", n.Add(1)%1000), data, ""); err != nil {
								b.Error(err)
							}
						}
					})
					b.StopTimer()
					b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "events/s")
					b.ReportMetric(float64(b.N)/(float64(idling.CPU()-cpu)/1e9), "events/CPU-s")
				})
			}
		}
	}
}

// newShardSites starts a single node, or a cluster whose leaders are spread.
func newShardSites(b *testing.B, members, shards int, syncAlways bool) []*site {
	setLeaderRest(b, 100*time.Millisecond)
	addrs := freeport.Addrs(b, members)
	sites := make([]*site, members)
	var starting sync.WaitGroup
	for i := range members {
		c := NodeConfig{Name: fmt.Sprint("n", i), Store: b.TempDir(), SyncAlways: syncAlways}
		if members > 1 {
			c.Cluster, c.Routes = addrs[i], addrs
		}
		node := newNode(b, c)
		starting.Go(func() {
			sites[i] = newSiteOn(b, node, Config{Stream: StreamConfig{Shards: shards, Replicas: members}})
		})
	}
	starting.Wait()
	if b.Failed() {
		b.FailNow()
	}
	for members > 1 && shards > 1 {
		var leaders []string
		for _, m := range sites[0].Members() {
			if m.Leader {
				leaders = append(leaders, m.Name)
			}
		}
		if want := []string{"n0", "n1", "n2", "n0"}[:shards]; slices.Equal(leaders, want) {
			break
		}
		await.Pause(50 * time.Millisecond)
	}
	return sites
}

// BenchmarkDisk appends 200 bytes to one file, or to several at the same time, and syncs each append: what the disk lets
// BenchmarkShards do with sync=always.
func BenchmarkDisk(b *testing.B) {
	for _, files := range []int{1, 2, 4} {
		b.Run(fmt.Sprint("files=", files), func(b *testing.B) {
			folder := b.TempDir()
			var n atomic.Int64
			var writing sync.WaitGroup
			began := time.Now()
			for i := range files {
				f, err := os.Create(filepath.Join(folder, fmt.Sprint(i)))
				must(b, err)
				defer f.Close()
				writing.Go(func() {
					for n.Add(1) <= int64(b.N) {
						if _, err := f.Write(make([]byte, 200)); err != nil {
							b.Error(err)
						}
						if err := f.Sync(); err != nil {
							b.Error(err)
						}
					}
				})
			}
			writing.Wait()
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "syncs/s")
		})
	}
}
