//go:build aix || (solaris && !illumos)

package sockettest

// There is no POLLRDHUP.
const more = 0
