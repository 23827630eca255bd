package iouring

// The part of the kernel's interface that this room uses (include/uapi/linux/io_uring.h), which x/sys does
// not have.
const (
	setupCQSize      = 1 << 3  // the size of the completion queue is given
	setupSubmitAll   = 1 << 7  // go on after an entry that fails
	setupCoopTaskrun = 1 << 8  // no interrupt for a thread that runs: it looks when it enters the kernel
	setupTaskrunFlag = 1 << 9  // and sqTaskrun tells that there is something to look at
	featSingleMmap   = 1 << 0  // both rings are one mapping
	featNoDrop       = 1 << 1  // completions that do not fit are kept
	featExtArg       = 1 << 8  // enter takes a time-out
	featCQESkip      = 1 << 11 // entries can complete silently

	offSQEs = 0x10000000

	enterGetEvents = 1 << 0
	enterExtArg    = 1 << 3

	registerEventfd = 4

	opNop         = 0
	opPollAdd     = 6
	opPollRemove  = 7
	opAsyncCancel = 14

	flagSkipSuccess = 1 << 6 // of an entry: no completion unless it fails

	pollMulti          = 1 << 0
	pollUpdateEvents   = 1 << 1
	pollUpdateUserData = 1 << 2

	cqeMore = 1 << 1 // the poll goes on

	sqOverflow = 1 << 1 // completions are waiting for room in the queue
	sqTaskrun  = 1 << 2 // some thread has work to do in the kernel

	cqEventfdDisabled = 1 << 0
)

// An sqe is one submission.
type sqe struct {
	op     uint8
	flags  uint8
	ioprio uint16
	fd     int32
	off    uint64 // of an update, the new data
	addr   uint64 // of an update or a cancel, the data of the poll that is meant
	len    uint32 // flags of a poll
	events uint32 // the conditions of a poll
	data   uint64
	_      [3]uint64
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

// An enterArg is what enter takes with enterExtArg.
type enterArg struct {
	_       uint64
	_       uint32
	_       uint32
	timeout uint64 // the address of a timespec
}
