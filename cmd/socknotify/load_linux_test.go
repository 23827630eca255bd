package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/load"
)

// On a terminal the progress is a bar in one line, which is cleared at the end.
func TestLoadBar(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	f := &loadFlags{Config: load.Config{Duration: 10 * time.Second}}
	show, clear := f.progress(terminal)
	show(load.Totals{Requests: 5000, Bytes: 320000, Elapsed: 5 * time.Second})
	clear()
	buf := make([]byte, 4096)
	got := ""
	for !strings.HasSuffix(got, "errors\r\x1b[K") {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		got += string(buf[:n])
	}
	if !strings.HasPrefix(got, "\r\x1b[K") || !strings.Contains(got, "50%") || !strings.Contains(got, "5,000 requests") || strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
}
