// Package wine lists the deviations of Wine from Windows. A test that behaves differently under
// Wine must name a deviation from this list.
package wine

// A Deviation describes a behavior of Wine that deviates from Windows.
type Deviation string

// The wineserver uses poll(2), so it cannot report more than poll(2) does. State that it reads from
// a socket, such as the pending error, is lost for other readers.
const (
	HidesEnd       Deviation = "Wine does not report the end of a stream before all data is read"
	TakesError     Deviation = "Wine clears the pending error of a socket when a poll reports it"
	ForgetsReset   Deviation = "Wine 8 reports the end of the stream to a receive after a reset"
	CompletesLate  Deviation = "Wine completes a poll only when the thread that started it runs"
	KeepsPort      Deviation = "Wine cannot dissociate a handle from a completion port"
	ForgetsPeer    Deviation = "Wine does not return the peer's address of a closed connection, which identifies it"
	DiesOfHalfMade Deviation = "The server of Wine 8 crashes when a socket is polled that another thread is creating (set_fd_events)"
	CountsNoHandle Deviation = "Wine does not report the number of handles of a process"
	HasNoUnix      Deviation = "Wine has no Unix sockets"
	FailsAccept    Deviation = "An AcceptEx fails under Wine if its connection was reset concurrently"
	IgnoresInfo    Deviation = "Wine sends a datagram from the address that the system chooses, whatever IP_PKTINFO says"
	AsksServer     Deviation = "Wine sends system calls to its server, which has one thread for all processes"
)

// Here reports whether the deviation applies to this process: whether this is a Wine that deviates.
// A deviation that is a race cannot be probed, and applies to every Wine.
func (d Deviation) Here() bool { return d != "" && Version() != "" && deviates(d) }
