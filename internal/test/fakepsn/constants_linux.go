package fakepsn

// From winsock2.h and winerror.h.
const (
	in     = 0x01
	out    = 0x02
	hangup = 0x04
	all    = in | out | hangup
	err    = 0x40
	remove = 0x80

	opNone    = 0
	opEnable  = 1
	opDisable = 2
	opRemove  = 4

	oneShot    = 1
	persistent = 2
	level      = 4
	edge       = 8

	ok                    = 0
	errorAccessDenied     = 5
	errorInvalidHandle    = 6
	errorInvalidParameter = 87
	errorBusy             = 170
	waitTimeout           = 258
	errorNotFound         = 1168
	errorTimeout          = 1460
	wsaNotSock            = 10038
	wsaNoBufs             = 10055

	infinite = 1<<32 - 1
)
