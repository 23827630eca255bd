//go:build freebsd || illumos

package unixsock

const rdhup = 0x4000 // POLLRDHUP, which x/sys does not define for illumos
