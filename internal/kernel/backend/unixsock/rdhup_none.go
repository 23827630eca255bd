//go:build unix && !linux && !freebsd && !illumos

package unixsock

// These systems have no POLLRDHUP. PollOne finds the end of a stream, but not behind unread data. On macOS,
// POLLHUP reports it there too.
const rdhup = 0
