package ring

// The part of the kernel's interface that this package uses (include/uapi/linux/io_uring.h), which x/sys does
// not have.
const (
	setupSubmitAll = 1 << 7 // go on after an entry that fails
	featSingleMmap = 1 << 0 // both queues are one mapping
	featNoDrop     = 1 << 1 // completions that do not fit are kept

	offSQEs = 0x10000000

	enterGetEvents = 1 << 0

	opSend = 26
	opRecv = 27
)

// An sqe is one submission.
type sqe struct {
	op      uint8
	flags   uint8
	ioprio  uint16
	fd      int32  // the socket or file
	off     uint64 // in a file
	addr    uint64 // of the buffer
	len     uint32 // bytes
	opFlags uint32 // of a receive or send
	data    uint64
	_       [3]uint64
}

// A cqe is one completion.
type cqe struct {
	data  uint64
	res   int32
	flags uint32
}

type sqOffsets struct {
	head, tail, mask, entries, flags, dropped, array, _ uint32
	_                                                   uint64
}

type cqOffsets struct {
	head, tail, mask, entries, overflow, cqes, flags, _ uint32
	_                                                   uint64
}

type params struct {
	sqEntries, cqEntries, flags, cpu, idle, features, wqFD uint32
	_                                                      [3]uint32
	sq                                                     sqOffsets
	cq                                                     cqOffsets
}
