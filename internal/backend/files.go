package backend

// Files is what a Poller offers besides whose kernel reads and writes files while the program goes on. Its
// methods may be called by any number of goroutines at once, those with a token not for the same one.
type Files interface {
	// Suits tells what of the below serves for an open file. It is asked once for each file.
	Suits(file uintptr) FileUse

	// ReadNow is a pread that takes only what is at hand, and does not wait: ok is false where nothing is. Less
	// than asked for is nothing unusual; it is none at the end of the file.
	ReadNow(file uintptr, b []byte, off int64) (n int, ok bool)

	// StartTransfer begins to read or write at an offset, as pread and pwrite do, and does not wait for it. The
	// token is below MaxTransfers, and of no transfer that is under way; b is not empty, and the kernel's until
	// Transferred has given the token back. The file may be closed after the call. False says that the kernel does not take it
	// now, and nothing was begun.
	StartTransfer(file uintptr, token uint32, write bool, b []byte, off int64) bool

	// CancelTransfer asks the kernel to give up one that is under way, if it can. It ends all the same.
	CancelTransfer(token uint32)

	// Due reports whether Transferred has to be called. It is so when a transfer has ended, which ends a Park
	// too, and may be so otherwise. It makes no system call.
	Due() bool

	// Transferred takes transfers that have ended, and returns how many. While Due reports true there may be
	// more.
	Transferred(ended []Transferred) int

	// Transferring reports whether there are any, which Close of the Poller waits for.
	Transferring() bool
}

// FileUse is what a file can be used with.
type FileUse struct{ ReadNow, Read, Write bool }

// MaxTransfers is how many transfers can be under way at once.
const MaxTransfers = 128

// Transferred is how a transfer ended.
type Transferred struct {
	Token  uint32
	Status TransferStatus
	N      int // bytes moved: where it is done, maybe fewer than asked for, and none at the end of a file
}

// TransferStatus is the outcome of a transfer.
type TransferStatus uint8

const (
	Moved     TransferStatus = iota
	Abandoned                // the kernel gave it up, asked to or for reasons of its own
	Failed                   // for a reason that pread or pwrite would tell
)
