package backend

// Files is implemented by a Poller whose kernel can read and write files asynchronously. Its methods may be
// called by any number of goroutines at once, but those that take a token not at once for the same token.
type Files interface {
	// Suits returns which of the methods below can be used with an open file. It is called once for each file.
	Suits(file uintptr) FileUse

	// ReadNow is a pread that returns only data that is in memory, and does not wait. ok is false if no data is
	// in memory. It often returns fewer bytes than len(b), and 0 at the end of the file.
	ReadNow(file uintptr, b []byte, off int64) (n int, ok bool)

	// StartTransfer starts a read or write at an offset, as pread and pwrite do, and does not wait for its end.
	// The token must be less than MaxTransfers and not in use by another transfer. b must not be empty, and is
	// owned by the kernel until Transferred has returned the token. The file may be closed after the call.
	// StartTransfer returns false, with nothing started, if the kernel does not accept the transfer now.
	StartTransfer(file uintptr, token uint32, write bool, b []byte, off int64) bool

	// CancelTransfer asks the kernel to cancel a transfer. Transferred still returns its token.
	CancelTransfer(token uint32)

	// Due reports whether Transferred has to be called. It returns true if a transfer has ended, which ends a
	// Park too, and may return true otherwise. It makes no system call.
	Due() bool

	// Transferred fills ended with transfers that have ended, and returns their number. While Due returns true,
	// there may be more.
	Transferred(ended []Transferred) int

	// Transferring reports whether any transfer is in progress. Close of the Poller waits for these.
	Transferring() bool
}

// FileUse lists the methods of Files that a file can be used with.
type FileUse struct{ ReadNow, Read, Write bool }

// MaxTransfers is the number of transfers that can be in progress at once.
const MaxTransfers = 128

// Transferred is the outcome of a transfer.
type Transferred struct {
	Token  uint32
	Status TransferStatus
	N      int // if Status is Moved: the number of bytes moved, which may be less than len(b), and 0 at the end of a file
}

// TransferStatus is the outcome of a transfer.
type TransferStatus uint8

const (
	Moved     TransferStatus = iota
	Abandoned                // the kernel cancelled it, on request or for reasons of its own
	Failed                   // pread or pwrite would return the reason
)
