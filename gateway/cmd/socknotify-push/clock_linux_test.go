package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/freeport"
)

// A processClock is the clock of one process, which can be set. The kernel has no such clock: a time namespace
// moves only the monotonic ones. But a program asks for the time of day by the function of the vDSO, of
// which each process has a copy. It is replaced before the first instruction of the process, by one
// that asks the kernel and adds an offset.
type processClock struct {
	pid int
	at  int64 // the address of the offset
}

// askTime is the function, for amd64. It is followed by the seconds and the nanoseconds of the offset.
var askTime = []byte{
	0xb8, 0xe4, 0, 0, 0, // mov eax, 228: clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi: is it CLOCK_REALTIME?
	0x75, 0x2c, // jne to ret
	0x48, 0x8b, 0x0d, 0x26, 0, 0, 0, // mov rcx, [rip+0x26]: the seconds
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0x48, 0x8b, 0x0d, 0x24, 0, 0, 0, // mov rcx, [rip+0x24]: the nanoseconds
	0x48, 0x03, 0x4e, 0x08, // add rcx, [rsi+8]
	0x48, 0x81, 0xf9, 0, 0xca, 0x9a, 0x3b, // cmp rcx, 1000000000
	0x7c, 0x0a, // jl to the last mov
	0x48, 0x81, 0xe9, 0, 0xca, 0x9a, 0x3b, // sub rcx, 1000000000
	0x48, 0xff, 0x06, // inc qword [rsi]
	0x48, 0x89, 0x4e, 0x08, // mov [rsi+8], rcx
	0xc3, // ret
}

// start starts a process whose clock can be set. It must be called on a thread that is locked.
func (c *processClock) start(command *exec.Cmd) error {
	if runtime.GOARCH != "amd64" {
		return command.Start()
	}
	command.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := command.Start(); err != nil {
		return err
	}
	c.pid = command.Process.Pid
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.pid, &status, 0, nil); err != nil || !status.Stopped() {
		return fmt.Errorf("the process is not stopped: %v, %v", status, err)
	}
	return errors.Join(c.replace(), syscall.PtraceDetach(c.pid))
}

// replace replaces the function of the vDSO of the process, which is stopped.
func (c *processClock) replace() error {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
	if err != nil {
		return err
	}
	var begin, end int64
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "[vdso]") {
			fmt.Sscanf(line, "%x-%x", &begin, &end)
		}
	}
	image := make([]byte, end-begin)
	memory, err := c.memory()
	if err != nil {
		return err
	}
	defer memory.Close()
	if _, err := memory.ReadAt(image, begin); err != nil {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Size >= uint64(len(askTime)+16) {
			c.at = begin + int64(s.Value) + int64(len(askTime))
			_, err := memory.WriteAt(append(bytes.Clone(askTime), make([]byte, 16)...), begin+int64(s.Value))
			return err
		}
	}
	return errors.New("the vDSO has no function for the time that is long enough")
}

func (c *processClock) memory() (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), os.O_RDWR, 0)
}

// set makes the process's clock differ from this one's. It reports whether it can.
func (c *processClock) set(d time.Duration) (bool, error) {
	if c.at == 0 {
		return false, nil
	}
	memory, err := c.memory()
	if err != nil {
		return false, err
	}
	defer memory.Close()
	nanos := (d%time.Second + time.Second) % time.Second
	b := binary.LittleEndian.AppendUint64(nil, uint64((d-nanos)/time.Second))
	_, err = memory.WriteAt(binary.LittleEndian.AppendUint64(b, uint64(nanos)), c.at)
	return err == nil, err
}

// The clock of a node can be set while it runs: the answers of the node have its time.
func TestClock(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the function that is put into the vDSO is for amd64")
	}
	addr := freeport.Addrs(t, 1)[0]
	var c processClock
	m := &member{url: "http://" + addr, args: []string{"--addr", addr, "--name", "one", "--store", t.TempDir()}}
	m.begin = func(command *exec.Cmd) error {
		failed := make(chan error)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			failed <- c.start(command)
		}()
		return <-failed
	}
	m.start(t)
	until(t, "the node is ready", func() bool {
		code, _ := ask(t, "GET", m.url+"/readyz", "")
		return code == http.StatusOK
	})
	for _, want := range []time.Duration{0, time.Hour, -24 * time.Hour, 900 * time.Millisecond, -900 * time.Millisecond, 0} {
		ok, err := c.set(want)
		must(t, err)
		if !ok {
			t.Fatal("the clock cannot be set")
		}
		before := time.Now().Add(want).Truncate(time.Second) // as in the header
		answer := must1(caller.Get(m.url + "/healthz"))
		answer.Body.Close()
		at, err := http.ParseTime(answer.Header.Get("Date"))
		must(t, err)
		if at.Before(before) || at.After(time.Now().Add(want)) {
			t.Errorf("%v: the node says %v, and it is %v there", want, at, before)
		}
	}
}
