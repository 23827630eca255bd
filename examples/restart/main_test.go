//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/examples/internal/program"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/freeport"
)

func TestMain(m *testing.M) {
	run := os.Getenv("RESTART_TEST") != "" // the successors, which program.Main does not know
	if run {
		main()
		os.Exit(0)
	}
	program.Main(m, func() {
		os.Setenv("RESTART_TEST", "1")
		main()
	})
}

const soon = 2 * time.Minute

// adopt makes processes whose parent has ended children of this one, where the system can. It returns a function that waits
// for the end of one: process 1 does not do so everywhere.
var adopt = func(*testing.T) (reap func(pid int)) { return func(int) {} }

// ask connects and asks for the process id, after a pause in which the connection may be handed over.
func ask(network, addr string, pause time.Duration) (pid int, err error) {
	dial := network
	if network == "http" {
		dial = "tcp"
	}
	c, err := net.DialTimeout(dial, addr, soon)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(soon))
	await.Pause(pause)
	in := bufio.NewReader(c)
	if network == "http" {
		r, err := http.NewRequest("GET", "http://"+addr+"/line", nil)
		if err != nil {
			return 0, err
		}
		r.Close = true
		if err := r.Write(c); err != nil {
			return 0, err
		}
		response, err := http.ReadResponse(in, r)
		if err != nil {
			return 0, err
		}
		in = bufio.NewReader(response.Body)
	} else if _, err := io.WriteString(c, "line\n"); err != nil {
		return 0, err
	}
	answer, err := in.ReadString('\n')
	first, rest, _ := strings.Cut(answer, " ")
	rest = strings.TrimPrefix(rest, "/")
	if err == nil && rest != "line\n" {
		err = fmt.Errorf("answer %q", answer)
	}
	pid, _ = strconv.Atoi(first)
	return pid, err
}

// Under load no connection is refused and no request is lost, while the server is restarted three times.
func TestRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	reap := adopt(t)
	web := freeport.Addrs(t, 1)[0]
	p := program.Start(t, "", "-unix", path, "-http", web)
	pid, err := ask("unix", path, 0)
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{pid}
	var mu sync.Mutex
	answers := make(map[int]int) // of a process
	last := pid
	t.Cleanup(func() {
		if t.Failed() {
			mu.Lock()
			defer mu.Unlock()
			for pid := range answers {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range 8 {
		network, addr := "tcp", p.Addr
		switch i % 4 {
		case 0:
			network, addr = "unix", path
		case 1:
			network, addr = "http", web
		}
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				pid, err := ask(network, addr, time.Duration(rand.IntN(3000))*time.Microsecond)
				if err != nil {
					t.Errorf("%s: %v", network, err)
					return
				}
				mu.Lock()
				answers[pid]++
				last = pid
				mu.Unlock()
			}
		})
	}
	wait := func(what string, holds func() bool) {
		t.Helper()
		await.Until(t, what, holds)
	}
	for range 3 {
		old := pid
		wait("some answers", func() bool { mu.Lock(); defer mu.Unlock(); return answers[old] > 100 })
		if err := syscall.Kill(old, syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		wait("a successor", func() bool { mu.Lock(); defer mu.Unlock(); pid = last; return last != old })
		pids = append(pids, pid)
		before := 0
		wait("the end of the predecessor", func() bool { // 200 answers, and none from it
			mu.Lock()
			defer mu.Unlock()
			if answers[old] != before {
				before = answers[old]
				answers[pid] = 0
			}
			return answers[pid] > 200
		})
	}
	close(stop)
	load.Wait()
	if len(answers) != 4 {
		t.Errorf("%d processes have answered, want 4", len(answers))
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	wait("the end", func() bool { _, err := os.Stat(path); return errors.Is(err, fs.ErrNotExist) }) // the last one removes the path
	wait("the TCP sockets to be closed", func() bool {
		c, err := net.Dial("tcp", p.Addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	p.Wait(t)
	for _, pid := range pids[1:] { // the end of each process makes the next one a child of this one
		reap(pid)
	}
}
