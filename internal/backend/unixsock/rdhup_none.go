//go:build unix && !linux && !freebsd && !illumos

package unixsock

// There is no POLLRDHUP: the end of a stream is found by looking, and behind unread data not at all, but on
// macOS, whose POLLHUP tells it.
const rdhup = 0
