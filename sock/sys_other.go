//go:build !unix && !windows

package sock

import (
	"errors"
	"net/netip"
	"os"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
)

// errSystem wraps errors.ErrUnsupported.
var errSystem = errors.Join(errors.New("not supported on this system"), errors.ErrUnsupported)

// UnixPair returns two connected Unix sockets: stream sockets, or datagram sockets.
func UnixPair(bool) (a, b *Socket, err error) {
	return nil, nil, &Error{"socketpair", ^uintptr(0), errSystem}
}

func sysSocket(Network) (uintptr, error)                             { return 0, errSystem }
func sysBind(uintptr, netip.AddrPort) error                          { return errSystem }
func sysBindUnix(uintptr, string) error                              { return errSystem }
func sysConnect(uintptr, netip.AddrPort) error                       { return errSystem }
func sysConnectUnix(uintptr, string) error                           { return errSystem }
func sysLocalAddr(uintptr) netip.AddrPort                            { return netip.AddrPort{} }
func sysRemoteAddr(uintptr) netip.AddrPort                           { return netip.AddrPort{} }
func sysLocalPath(uintptr) string                                    { return "" }
func sysListen(uintptr, int) error                                   { return errSystem }
func sysListenOptions(uintptr, netip.AddrPort, ListenOptions) error  { return errSystem }
func sysAccept(uintptr) (uintptr, error)                             { return 0, errSystem }
func sysClose(uintptr) error                                         { return errSystem }
func sysDetached(uintptr)                                            {}
func sysRecv(uintptr, []byte) (int, error)                           { return 0, errSystem }
func sysSend(uintptr, []byte) (int, error)                           { return 0, errSystem }
func sysSendV(uintptr, [][]byte, bool) (int, error)                  { return 0, errSystem }
func sysRecvFrom(uintptr, []byte) (n int, a netip.AddrPort, e error) { return 0, a, errSystem }
func sysSendTo(uintptr, []byte, netip.AddrPort) error                { return errSystem }
func sysPacketInfo(uintptr, bool) error                              { return errSystem }
func sysShutdown(uintptr, How) error                                 { return errSystem }
func sysErr(uintptr) error                                           { return errSystem }
func sysNoDelay(uintptr, bool) error                                 { return errSystem }
func sysHasNoDelay(uintptr) (bool, error)                            { return false, errSystem }
func sysBuffer(uintptr, fdstate.Dir, int) error                      { return errSystem }
func sysLinger(uintptr, bool) error                                  { return errSystem }
func sysDualStack(uintptr, bool) error                               { return errSystem }
func sysReusePort(uintptr, bool) error                               { return errSystem }
func sysDescribe(uintptr) (description, error)                       { return description{}, errSystem }
func sysNonblock(uintptr) error                                      { return errSystem }
func sysDup(uintptr) (uintptr, error)                                { return 0, errSystem }
func sysIsTCP(uintptr) bool                                          { return false }
func hasKeepAlive(uintptr) (bool, error)                             { return false, errSystem }
func setKeepAlive(uintptr, bool) error                               { return errSystem }
func getTCP(uintptr, int) (int, error)                               { return 0, errSystem }
func setTCP(uintptr, int, int) error                                 { return errSystem }

func sysRecvInfo(uintptr, []byte) (n int, a netip.AddrPort, l netip.Addr, e error) {
	return 0, a, l, errSystem
}

func sysSendInfo(uintptr, []byte, netip.AddrPort, netip.Addr) error { return errSystem }

func sysSendFile(h uintptr, f *os.File, offset int64, n int) (int, error) {
	return copyFile(h, f, offset, n)
}

var exhausted []error

const keepIdle, keepInterval, keepCount = 0, 0, 0
