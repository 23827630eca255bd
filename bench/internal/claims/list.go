package claims

import (
	"fmt"
	"math"

	"github.com/socknotify/socknotify/bench/internal/param"
	"github.com/socknotify/socknotify/bench/internal/record"
)

// peers are the Go libraries that a server is compared with. go-epoll, the loop by hand, is not one of them.
var peers = []string{"std", "netpoll"}

// claims returns the promises that can be measured.
func claims() []Claim {
	var all []Claim
	for _, conns := range []int{100, 1000} {
		p := param.Params{Connections: conns, Size: 64, Cores: 1}
		what := fmt.Sprintf("echo, 64 B, %d connections, one core, package server: CPU to ", conns)
		all = append(all,
			Claim{What: what + "the C level-triggered loop", Limit: 1.10, figure: one("echo", p, "socknotify/epoll server", cpuRatio)},
			Claim{What: what + "the best Go peer", Limit: 0.85, figure: toBest("echo", p, "socknotify/epoll server", peers)})
	}
	for _, n := range []int{100, 1000, 9000} {
		all = append(all, Claim{
			What:  fmt.Sprintf("event core, one-shot and drained, 100 active of %d: CPU to the C level-triggered loop", n),
			Limit: 1.35, figure: one("core", core(n), drained("epoll"), cpuRatio)})
	}
	all = append(all,
		Claim{What: "16 waiters: throughput to one waiter's", Limit: 0.9, Least: true,
			figure: quotient("waiters", waiters(16), drained("epoll"), waiters(1), drained("epoll"), rateRatio)},
		Claim{What: "16 waiters: CPU for each event to one waiter's", Limit: 1.5,
			figure: quotient("waiters", waiters(16), drained("epoll"), waiters(1), drained("epoll"), totalRatio)},
		Claim{What: "16 waiters: the event core's part of that",
			figure: quotient("waiters", waiters(16), drained("epoll"), waiters(1), drained("epoll"), cpuRatio)})
	for _, n := range []int{1, 4, 16} {
		all = append(all, Claim{What: fmt.Sprintf("post, %d posters: CPU to a buffered channel's send", n), Limit: 1.5,
			figure: one("post", posts(n, 0), "socknotify/epoll", cpuRatio)})
	}
	for _, n := range []int{1, 4, 16} {
		all = append(all, Claim{What: fmt.Sprintf("post and wait, %d posters and as many waiters: CPU to a channel's", n), Limit: 1.5,
			figure: one("post", posts(n, n), "socknotify/epoll", cpuRatio)})
	}
	for _, what := range []string{"handoff", "cross"} {
		p := param.Params{What: what, Cores: 2}
		all = append(all, Claim{What: "a parked waiter is woken by a post, " + what + ": latency to a channel's", Limit: 1,
			figure: one("wake", p, "socknotify/epoll post", latencyRatio)})
	}
	busy := param.Params{Connections: 100, Size: 64, Cores: 1}
	return append(all,
		Claim{What: "overlapped echo, 100 busy connections: system calls for each request", Limit: 2.2,
			figure: func(rs results) []float64 {
				calls := func(r *record.Record) *float64 { return r.Syscalls }
				return single(rs.of("echo", busy, "socknotify/epoll overlapped"), calls)
			}},
		Claim{What: "an idle registration: live bytes of the port", Limit: 96, figure: func(rs results) []float64 {
			p := param.Params{What: "registration", Registered: 5000, Cores: 1}
			return single(rs.of("idle", p, "socknotify/epoll"), func(r *record.Record) *float64 { return r.Bytes })
		}},
		Claim{What: "event core, 100 active: cost for each event with 9000 registered to that with 100", Limit: 1.25,
			figure: quotient("core", core(9000), drained("epoll"), core(100), drained("epoll"), ns)})
}

func drained(backend string) string { return "socknotify/" + backend + " oneshot+drained" }

func core(registered int) param.Params {
	return param.Params{Registered: registered, Active: 100, Batch: 256, Waiters: 1, Cores: 1}
}

func waiters(n int) param.Params {
	return param.Params{Registered: 128, Active: 128, Batch: 8, Waiters: n, Cores: 2}
}

func posts(posters, waiters int) param.Params {
	return param.Params{Posters: posters, Waiters: waiters, Batch: 64, Cores: 2}
}

func cpuRatio(f record.Figures) float64     { return f.CPURatio }
func totalRatio(f record.Figures) float64   { return f.TotalRatio }
func rateRatio(f record.Figures) float64    { return f.RateRatio }
func latencyRatio(f record.Figures) float64 { return f.LatencyRatio }
func ns(f record.Figures) float64           { return f.Ns }

// one returns a figure of one contender.
func one(workload string, p param.Params, contender string, of func(record.Figures) float64) func(results) []float64 {
	return func(rs results) []float64 { return values(rs.of(workload, p, contender), of) }
}

// quotient returns the figure of one contender divided by that of another in the same round.
func quotient(workload string, p param.Params, contender string, q param.Params, other string, of func(record.Figures) float64) func(results) []float64 {
	return func(rs results) []float64 {
		return divide(values(rs.of(workload, p, contender), of), values(rs.of(workload, q, other), of))
	}
}

// toBest returns the CPU time of one contender divided by the lowest of the others in each round. Missing contenders
// are left out.
func toBest(workload string, p param.Params, contender string, others []string) func(results) []float64 {
	return func(rs results) []float64 {
		var best []float64
		for _, name := range others {
			vs := values(rs.of(workload, p, name), cpuRatio)
			for i, v := range vs {
				if i == len(best) {
					best = append(best, math.Inf(1))
				}
				best[i] = min(best[i], v)
			}
		}
		return divide(values(rs.of(workload, p, contender), cpuRatio), best)
	}
}

func values(r *record.Record, of func(record.Figures) float64) []float64 {
	if r == nil {
		return nil
	}
	var vs []float64
	for _, s := range r.Samples {
		vs = append(vs, of(s))
	}
	return vs
}

func single(r *record.Record, of func(*record.Record) *float64) []float64 {
	if r == nil || of(r) == nil {
		return nil
	}
	return []float64{*of(r)}
}

func divide(a, b []float64) []float64 {
	var qs []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			qs = append(qs, a[i]/b[i])
		}
	}
	return qs
}
