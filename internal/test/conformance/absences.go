package conformance

import (
	"runtime"
	"slices"
	"strings"

	"github.com/socknotify/socknotify/internal/test/wine"
)

// An absence is cases that some systems cannot show, and why.
type absence struct {
	on      []string       // runtime.GOOS
	backend string         // where it is that one's alone
	wine    wine.Deviation // where it is under that, which is the reason there
	psn     bool           // on the ports of Windows, wherever they are faked
	cases   []string       // sentence/name
	why     string
}

var (
	bsds     = []string{"darwin", "dragonfly", "freebsd", "netbsd", "openbsd"}
	sysvs    = []string{"aix", "illumos", "solaris"}
	notLinux = slices.Concat(bsds, sysvs, []string{"windows"})
	noRdhup  = []string{"aix", "solaris"} // without POLLRDHUP and without kqueue
)

var absences = []absence{
	{on: notLinux, why: "MPTCP is for Linux alone", cases: []string{
		"E3/MPTCP", "E5/MPTCPReset", "E5/MPTCPResetWithUnreadData", "E6/MPTCPFresh", "E7/MPTCPRefused", "E7/MPTCPRefusedWhileWaiting",
	}},
	{on: notLinux, why: "vsock is for Linux alone", cases: []string{"E6/VsockFresh"}},
	{on: slices.Concat(sysvs, []string{"darwin", "windows"}), why: "the system has no Unix sequenced packets", cases: []string{"E1/Packets"}},
	{on: noRdhup, wine: wine.HidesEnd,
		why: "the system does not report the end of a stream behind unread data", cases: []string{
			"E3/HalfCloseWithUnreadData", "E3/HangupAlone", "E8/LevelOutsideTheFilter", "E9/NothingOutsideTheFilter",
			"T3/OneForEachEnable", "T5/Coalesce", "T6/PolledWhenEnabled",
		}},
	{on: notLinux, why: "a receive does not block once a datagram socket was shut down", cases: []string{"X5/SockPersistsAfterBlocked"}},
	{wine: wine.TakesError, cases: []string{
		"E5/ErrorHidesNothing", "E5/ErrorIsNotRead", "E5/RefusedDatagram", "O5/RefusedConnect",
	}},
	{wine: wine.ForgetsReset, cases: []string{
		"O4/ResetBehindASend", "O4/ResetOfMany", "O5/ResetBehindAReceive", "O5/ResetNotReported",
	}},
	{on: sysvs, backend: "poll", why: "the next socket may have the same identity (internal/kernel/backend/poll)", cases: []string{"G9/ReusedNumberNotRegistered"}},
	{psn: true, why: "Windows does not report a local shutdown (E3)", cases: []string{"E3/LocalShutdown"}},
	{on: []string{"netbsd", "illumos", "solaris"}, backend: "poll", why: "poll(2) reports no errors, and unread data hides them (E5)",
		cases: []string{"E5/ErrorHidesNothing"}},
}

// absent returns why a case cannot be shown here, or "".
func absent(name string, backend func() string) string {
	for _, a := range absences {
		if !slices.Contains(a.cases, name) {
			continue
		}
		switch {
		case slices.Contains(a.on, runtime.GOOS) && (a.backend == "" || a.backend == backend()),
			a.psn && (runtime.GOOS == "windows" || strings.HasPrefix(backend(), "psn")):
			return a.why
		case a.wine.Here():
			return string(a.wine)
		}
	}
	return ""
}
