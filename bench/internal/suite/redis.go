package suite

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"

	"github.com/socknotify/socknotify/bench/internal/contend"
)

// redisProgram makes the load of the workload redis.
const redisProgram = "redis-benchmark"

// redisSets are the sets of the workload redis. A sample takes one or two seconds.
func redisSets(divisor int) []Set {
	var sets []Set
	for _, s := range []struct{ clients, pipelined, cores, requests int }{
		{50, 1, 2, 150_000}, {500, 1, 2, 150_000}, {50, 16, 2, 1_200_000}, {1, 1, 2, 40_000},
		{50, 1, 1, 120_000},
	} {
		p := contend.Params{Connections: s.clients, Depth: s.pipelined, Cores: s.cores}
		p.Requests = s.requests / divisor
		sets = append(sets, Set{p, 1})
	}
	return sets
}

// redisBenchmark measures a Redis server under the load of redis-benchmark.
func redisBenchmark(
	ctx context.Context, s *scene, p contend.Params, _ bool,
) (o contend.Outcome, err error) {
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return o, err
	}
	run := func(args ...string) error {
		args = append([]string{"-q", "-p", port}, args...)
		said, err := exec.CommandContext(ctx, redisProgram, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", redisProgram, err, said)
		}
		return s.running()
	}
	if err := run("-t", "set", "-n", "1", "-c", "1"); err != nil { // the key that GET asks for
		return o, err
	}
	before, err := s.read()
	if err != nil {
		return o, err
	}
	if err := run("-t", "get", "-n", strconv.Itoa(p.Requests),
		"-c", strconv.Itoa(p.Connections), "-P", strconv.Itoa(p.Depth)); err != nil {
		return o, err
	}
	now, err := s.read()
	if err != nil {
		return o, err
	}
	return now.since(before, float64(p.Requests))
}
