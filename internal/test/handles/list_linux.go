package handles

import (
	"fmt"
	"os"
	"slices"
)

// List returns the process's open descriptors, each with its target.
func List() []string {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		panic(err) // without the list, tests would find no leaks
	}
	defer dir.Close()
	numbers, err := dir.Readdirnames(-1)
	if err != nil {
		panic(err)
	}
	self := fmt.Sprint(dir.Fd())
	var list []string
	for _, n := range numbers {
		if n == self {
			continue
		}
		// If Readlink fails, the descriptor has been closed.
		if to, err := os.Readlink("/proc/self/fd/" + n); err == nil {
			list = append(list, n+" "+to)
		}
	}
	slices.Sort(list)
	return list
}
