//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/socknotify/socknotify/bench/internal/proc"
	"github.com/socknotify/socknotify/bench/internal/redis"
)

// A redisSet is a set of parameters of redis-benchmark.
type redisSet struct{ clients, pipeline, cores, requests int }

var redisSets = []redisSet{
	{50, 1, 2, 150_000}, {500, 1, 2, 150_000}, {50, 16, 2, 1_200_000}, {1, 1, 2, 40_000}, {50, 1, 1, 120_000},
}

// compareRedis measures a Redis server on package server beside one with a goroutine for each
// connection, by redis-benchmark, and prints samples as lines of a Go benchmark.
func compareRedis(ctx context.Context, args []string, stdout io.Writer) error {
	f := flag.NewFlagSet("redis", flag.ContinueOnError)
	rounds := f.Int("rounds", 9, "rounds, in each of which all is measured once")
	share := f.Int("share", 1, "divides the number of requests; the figures mean less then")
	if err := f.Parse(args); err != nil {
		return err
	}
	if _, err := exec.LookPath("redis-benchmark"); err != nil {
		return fmt.Errorf("it comes with Debian's redis-tools: %w", err)
	}
	spawner := proc.NewSpawner()
	for range *rounds {
		for _, set := range redisSets {
			set.requests /= *share
			var us []float64
			for _, kind := range redis.Kinds {
				one, err := measureRedis(ctx, spawner, kind, set)
				if err != nil {
					return fmt.Errorf("%s, %+v: %w", kind, set, err)
				}
				us = append(us, one)
			}
			for i, kind := range redis.Kinds {
				const line = "BenchmarkRedis/clients=%d/pipeline=%d/cores=%d/server=%s %d %.5g ns/op %.4g cpu-ratio\n"
				fmt.Fprintf(stdout, line, set.clients, set.pipeline, set.cores, kind, set.requests, us[i]*1000, us[i]/us[1])
			}
		}
	}
	return nil
}

// serveRedis is one of the servers. It prints its address.
func serveRedis(_ context.Context, args []string, stdout io.Writer) error {
	if len(args) != 1 {
		return errors.New("redis-server kind")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, l.Addr())
	return redis.Serve(args[0], l)
}

// measureRedis returns the microseconds of CPU that a server uses for a GET.
func measureRedis(ctx context.Context, spawner *proc.Spawner, kind string, set redisSet) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cpus, err := proc.CPUs()
	if err != nil {
		return 0, err
	}
	server, err := spawner.Start([]string{self, "redis-server", kind}, cpus[:min(set.cores, len(cpus))])
	if err != nil {
		return 0, err
	}
	defer server.Stop()
	addr, err := server.Line(ctx, time.Minute)
	if err != nil {
		return 0, err
	}
	if err := redisSetKey(addr); err != nil {
		return 0, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	before, err := proc.Read(server.Pid())
	if err != nil {
		return 0, err
	}
	out, err := exec.CommandContext(ctx, "redis-benchmark", "-p", port, "-t", "get", "-q", "-n", strconv.Itoa(set.requests),
		"-c", strconv.Itoa(set.clients), "-P", strconv.Itoa(set.pipeline)).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("requests per second")) {
		return 0, fmt.Errorf("redis-benchmark: %v: %s", err, out)
	}
	after, err := proc.Read(server.Pid())
	if err != nil {
		return 0, err
	}
	ns, _, err := after.Since(before)
	return float64(ns) / float64(set.requests) / 1000, err
}

// redisSetKey sets the key that redis-benchmark asks for, with the 3 bytes that its SET has.
func redisSetKey(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "*3\r\n$3\r\nSET\r\n$16\r\nkey:__rand_int__\r\n$3\r\nxxx\r\n"); err != nil {
		return err
	}
	answer := make([]byte, len("+OK\r\n"))
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "+OK\r\n" {
		return fmt.Errorf("SET: %q, %w", answer, err)
	}
	return nil
}
