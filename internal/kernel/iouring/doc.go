// Package iouring is the room of Linux' io_uring.
package iouring
