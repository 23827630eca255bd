// Package iouring is the room of Linux' io_uring, for who asks for it.
