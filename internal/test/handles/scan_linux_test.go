package handles

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The scan that lists descriptors on other systems finds those that Linux lists, and tells sockets from pipes as it does.
func TestScan(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	all := []int{fds[0], fds[1], ends[0], ends[1]}
	defer func() {
		for _, fd := range all {
			unix.Close(fd)
		}
	}()
	// A socket's and a pipe's line has the number, the kind and the inode in both lists.
	known := func(list []string) []string {
		return slices.DeleteFunc(list, func(d string) bool {
			return !strings.Contains(d, " socket:[") && !strings.Contains(d, " pipe:[")
		})
	}
	scanned, listed := known(scan()), known(List())
	if len(listed) < len(all) || !slices.Equal(scanned, listed) {
		t.Errorf("scanned %q; Linux lists %q", scanned, listed)
	}
	unix.Close(all[3])
	all = all[:3]
	if after := scan(); slices.ContainsFunc(after, func(d string) bool { return slices.Contains(scanned, d) && !slices.Contains(List(), d) }) {
		t.Errorf("scanned %q, with one that is closed", after)
	}
}
