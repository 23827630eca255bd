package kqueue

import "github.com/socknotify/socknotify/internal/kernel/backend"

// mostSteps is the largest number of steps of a change.
const mostSteps = 4

// steps appends the steps of a change of a number. The change succeeds if all of them do.
func steps(list []kevent, action backend.Action, fd int, interest backend.Mask) []kevent {
	switch action {
	case backend.Add:
		return append(list,
			reader(fd, evAdd|evEnable|evClear, interest),
			writer(fd, evAdd|evClear|power(interest)),
			reader(fd, evEnable, interest), // fails if the number was closed in between
		)
	case backend.Set:
		list = append(list,
			reader(fd, evAdd|evEnable|evClear, interest),
			writer(fd, power(interest)),
		)
		if interest&backend.Out != 0 {
			list = append(list,
				writer(fd, evAdd|evEnable|evClear),
				reader(fd, evEnable, interest),
			)
		}
		return list
	case backend.Suppress:
		return append(list, reader(fd, evDisable, 0), writer(fd, evDisable))
	}
	return remove(list, fd)
}

// remove appends steps that remove both knotes. A knote may be absent.
func remove(list []kevent, fd int) []kevent {
	return append(list, reader(fd, evDelete, backend.In), writer(fd, evDelete))
}

// probe appends an operation that leaves a watched number unchanged, and fails if the number names
// another socket by now. Some kernels take parameters from every operation, so it has those of the knote.
func probe(list []kevent, fd int, writing bool) []kevent {
	if writing {
		return append(list, writer(fd, evEnable))
	}
	return append(list, writer(fd, evDisable))
}

func reader(fd int, flags uint32, interest backend.Mask) kevent {
	k := kevent{fd: fd, filter: reads, flags: flags}
	if interest&backend.In == 0 {
		k.fflags, k.data = noteLowat, tooMuch
	}
	return k
}

func writer(fd int, flags uint32) kevent { return kevent{fd: fd, filter: writes, flags: flags} }

func power(interest backend.Mask) uint32 {
	if interest&backend.Out != 0 {
		return evEnable
	}
	return evDisable
}

// blame finds the first error number of each change in the kernel's results. The results are in the order
// of the steps: all that failed, and some that succeeded. The changes are identified by their numbers,
// fds, which are distinct.
func blame(fds []int, returned []kevent, errs []int64) {
	clear(errs)
	i := 0
	for _, k := range returned {
		for i < len(fds) && fds[i] != k.fd {
			i++
		}
		if i == len(fds) {
			return // the rest belongs to no change
		}
		if errs[i] == 0 {
			errs[i] = k.data
		}
	}
}
