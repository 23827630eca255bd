// Package wine names what Wine does otherwise than Windows. Tests that run under Wine leave out, or read
// otherwise, what is named here, and nothing else.
package wine

import "strings"

// A Deviation says what Wine does.
type Deviation string

// What the wineserver asks Linux with poll(2) it cannot tell better than that, and what it reads of a socket
// is gone for others.
const (
	HidesEnd       Deviation = "Wine does not tell the end of a stream before all data is read"
	TakesError     Deviation = "Wine clears a socket's error when a poll finds it"
	ForgetsReset   Deviation = "Wine 8 lets a receive after a reset find the end of the stream"
	CompletesLate  Deviation = "Wine completes a poll in the thread that asked, whenever that is run"
	KeepsPort      Deviation = "Wine cannot take a handle off a completion port"
	ForgetsPeer    Deviation = "Wine has no peer's address of a connection that is over, by which it is told from another"
	DiesOfHalfMade Deviation = "Wine 8's server dies of a poll of a socket that another thread is making (set_fd_events)"
	CountsNoHandle Deviation = "Wine does not count a process's handles"
	HasNoUnix      Deviation = "Wine has no Unix sockets"
	FailsAccept    Deviation = "Wine fails an AcceptEx whose connection was reset meanwhile"
	AsksServer     Deviation = "Wine asks its server, one thread for all, for what is a system call elsewhere"
)

// Here reports whether the process has to do with it.
func (d Deviation) Here() bool {
	if d == ForgetsReset {
		return strings.HasPrefix(Version(), "8.")
	}
	return d != "" && Version() != ""
}

// Cases are those of package conformance (sentence/name) that cannot pass, and why.
func Cases() map[string]Deviation {
	return map[string]Deviation{
		"E3/HalfCloseWithUnreadData": HidesEnd,
		"E3/HangupAlone":             HidesEnd,
		"E8/LevelOutsideTheFilter":   HidesEnd,
		"E9/NothingOutsideTheFilter": HidesEnd,
		"T3/OneForEachEnable":        HidesEnd,
		"T5/Coalesce":                HidesEnd,
		"T6/LookedAtWhenEnabled":     HidesEnd,
		"E5/ErrorHidesNothing":       TakesError,
		"E5/ErrorIsNotRead":          TakesError,
		"E5/RefusedDatagram":         TakesError,
		"O5/RefusedConnect":          TakesError,
	}
}
