package overlapped

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const directFlag = unix.O_DIRECT

// filePlaces are directories of the system's temporary file system, with and without its cache if it can be
// gone around, and of one in memory.
func filePlaces(t *testing.T) []filePlace {
	t.Helper()
	places := []filePlace{{dir: t.TempDir()}}
	direct := filePlace{dir: t.TempDir(), direct: true}
	name := filepath.Join(direct.dir, "file")
	if f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|directFlag, 0o600); err != nil {
		t.Logf("no direct files here: %v", err)
	} else {
		f.Close()
		places = append(places, direct)
	}
	if dir, err := os.MkdirTemp("/dev/shm", "socknotify-test-"); err != nil {
		t.Logf("no files in memory here: %v", err)
	} else {
		t.Cleanup(func() { os.RemoveAll(dir) })
		places = append(places, filePlace{dir: dir})
	}
	return places
}

// kernelThreads is how many threads the kernel has in this process for the sake of a ring.
func kernelThreads(t *testing.T) (n int) {
	t.Helper()
	names, err := filepath.Glob("/proc/self/task/*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(b), "iou-") {
			n++
		}
	}
	return n
}
