package handles

import (
	"fmt"
	"os"
	"slices"
)

// List names the process's open descriptors, each with what it is for.
func List() []string {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		panic(err) // a test that counts nothing finds no leak
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
		// One that cannot be read is gone by now.
		if to, err := os.Readlink("/proc/self/fd/" + n); err == nil {
			list = append(list, n+" "+to)
		}
	}
	slices.Sort(list)
	return list
}
