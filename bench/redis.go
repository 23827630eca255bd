//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify/bench/internal/proc"
	"github.com/socknotify/socknotify/bench/internal/redis"
	"github.com/socknotify/socknotify/bench/internal/stat"
)

// A redisSet is a set of parameters of redis-benchmark.
type redisSet struct {
	Clients, Pipeline, Cores int
	requests                 int
	limit                    float64 // of package server's CPU to a goroutine each
}

var redisSets = []redisSet{
	{50, 1, 2, 150_000, 0.80}, {500, 1, 2, 150_000, 0.85}, {50, 16, 2, 1_200_000, 0.80}, {1, 1, 2, 40_000, 1.15},
	{50, 1, 1, 120_000, 0.90},
}

// A redisRecord has the CPU per request of both servers in each round, in microseconds.
type redisRecord struct {
	redisSet
	CPU   map[string][]float64
	Ratio float64 // the median of the rounds' ratios
}

// redisCommand measures a Redis server.
func redisCommand() *cobra.Command {
	var rounds, share int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "redis",
		Short: "Measure a Redis server on package server beside one with a goroutine for each connection, by redis-benchmark",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := exec.LookPath("redis-benchmark"); err != nil {
				return fmt.Errorf("it comes with Debian's redis-tools: %w", err)
			}
			spawner, records := proc.NewSpawner(), make([]redisRecord, len(redisSets))
			for round := range rounds {
				for i, set := range redisSets {
					set.requests /= share
					r := &records[i]
					if round == 0 {
						*r = redisRecord{redisSet: set, CPU: map[string][]float64{}}
					}
					for _, kind := range redis.Kinds {
						us, err := measureRedis(cmd.Context(), spawner, kind, set)
						if err != nil {
							return fmt.Errorf("%s, %+v: %w", kind, set, err)
						}
						r.CPU[kind] = append(r.CPU[kind], us)
					}
				}
			}
			for _, r := range records {
				var ratios []float64
				for i, us := range r.CPU[redis.Kinds[0]] {
					ratios = append(ratios, us/r.CPU[redis.Kinds[1]][i])
				}
				r.Ratio = stat.Median(ratios)
				if asJSON {
					if err := json.NewEncoder(cmd.OutOrStdout()).Encode(r); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%3d clients, pipeline %2d, %d cores: %.2f (limit %.2f)\n", r.Clients, r.Pipeline, r.Cores, r.Ratio, r.limit)
				for _, kind := range redis.Kinds {
					fmt.Fprintf(cmd.OutOrStdout(), "    %-10s %.2f us, quartiles %.2f and %.2f\n", kind, stat.Median(r.CPU[kind]), stat.Quantile(r.CPU[kind], 0.25), stat.Quantile(r.CPU[kind], 0.75))
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&rounds, "rounds", 9, "rounds, in each of which all is measured once")
	f.IntVar(&share, "share", 1, "divides the number of requests; the figures mean less then")
	f.BoolVar(&asJSON, "json", false, "print a line of JSON for each set of parameters")
	return cmd
}

// redisServerCommand is one of the servers. It prints its address.
func redisServerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "redis-server kind",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), l.Addr())
			return redis.Serve(args[0], l)
		},
	}
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
	server, err := spawner.Start([]string{self, "redis-server", kind}, cpus[:min(set.Cores, len(cpus))])
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
		"-c", strconv.Itoa(set.Clients), "-P", strconv.Itoa(set.Pipeline)).CombinedOutput()
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
