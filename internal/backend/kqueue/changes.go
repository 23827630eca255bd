package kqueue

import "github.com/socknotify/socknotify/internal/backend"

// mostSteps is how many steps a change takes at most.
const mostSteps = 4

// steps appends what a change of a number asks of the kernel. All of it has to succeed.
func steps(list []kevent, action backend.Action, fd int, interest backend.Mask) []kevent {
	switch action {
	case backend.Add:
		return append(list,
			reader(fd, evAdd|evEnable|evClear, interest),
			writer(fd, evAdd|evClear|power(interest)),
			reader(fd, evEnable, interest), // or else it was closed in between
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

// remove appends the removal of both knotes, whichever there are.
func remove(list []kevent, fd int) []kevent {
	return append(list, reader(fd, evDelete, backend.In), writer(fd, evDelete))
}

// probe appends an operation that changes nothing of a watched number, and fails if it names another
// socket by now. Some kernels take parameters from every operation, so it has those of the knote.
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

// blame finds the first error number of each change in what the kernel returned: in the order of the
// steps, some that succeeded and all that failed. The changes are told apart by their numbers, fds, of
// which there are no two the same.
func blame(fds []int, returned []kevent, errs []int64) {
	clear(errs)
	i := 0
	for _, k := range returned {
		for i < len(fds) && fds[i] != k.fd {
			i++
		}
		if i == len(fds) {
			return // the rest is not the changes'
		}
		if errs[i] == 0 {
			errs[i] = k.data
		}
	}
}
