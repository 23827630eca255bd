package sock

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	ws2             = windows.NewLazySystemDLL("ws2_32.dll")
	procAccept      = ws2.NewProc("accept")
	procBind        = ws2.NewProc("bind")
	procConnect     = ws2.NewProc("connect")
	procGetpeername = ws2.NewProc("getpeername")
	procGetsockname = ws2.NewProc("getsockname")
	procIoctlsocket = ws2.NewProc("ioctlsocket")
	procRecv        = ws2.NewProc("recv")
	procRecvfrom    = ws2.NewProc("recvfrom")
	procSend        = ws2.NewProc("send")
	procSendto      = ws2.NewProc("sendto")
)

// Options that x/sys does not name.
const (
	soAcceptConn = 0x2
	soError      = 0x1007
	soType       = 0x1008
)

// errNoOption is returned for keep-alive options by Windows before 10 1709, or 1703 for the number of
// probes.
const errNoOption = windows.WSAENOPROTOOPT

var exhausted = [...]error{windows.WSAEMFILE, windows.WSAENOBUFS, windows.ERROR_NOT_ENOUGH_MEMORY}

func getOption(h uintptr, level, option int) (int, error) {
	return windows.GetsockoptInt(windows.Handle(h), level, option)
}

func setOption(h uintptr, level, option, value int) error {
	return windows.SetsockoptInt(windows.Handle(h), level, option, value)
}

// winsock initializes Winsock, which is required before the first socket is created. It is never shut down.
var winsock = sync.OnceValue(func() error {
	var d windows.WSAData
	return windows.WSAStartup(2<<8|2, &d)
})

// failed reports whether a call returned SOCKET_ERROR, which is an int.
func wantError(r uintptr) bool { return int32(r) == -1 }

// blockedOr converts an error number to an error, or to ErrWouldBlock.
func blockedOr(e windows.Errno) error {
	switch e {
	case 0:
		return windows.WSAEINVAL // the call failed without an error number
	case windows.WSAEWOULDBLOCK:
		return ErrWouldBlock
	}
	return e
}

func blocked(err error) error {
	if err == windows.WSAEWOULDBLOCK {
		return ErrWouldBlock
	}
	return err
}

func sysSocket(n Network) (uintptr, error) {
	h, err := socket(n)
	if err != nil {
		return 0, err
	}
	if err := sysNonblock(h); err != nil {
		sysClose(h)
		return 0, err
	}
	if n == UDP4 || n == UDP6 {
		setConnReset(h, false)
	}
	return h, nil
}

// socket returns a new socket in blocking mode.
func socket(n Network) (uintptr, error) {
	if err := winsock(); err != nil {
		return 0, err
	}
	family, typ := n.sys()
	h, err := windows.WSASocket(int32(family), int32(typ), 0, nil, 0, socketFlags)
	switch err {
	case nil:
		return uintptr(h), nil
	case windows.WSAEAFNOSUPPORT, windows.WSAESOCKTNOSUPPORT, windows.WSAEPROTONOSUPPORT:
		if family == windows.AF_UNIX { // Windows before 10 1803, and datagram sockets on every version
			err = errors.ErrUnsupported
		}
	}
	return 0, err
}

const socketFlags = windows.WSA_FLAG_OVERLAPPED | windows.WSA_FLAG_NO_HANDLE_INHERIT

// setConnReset selects whether a UDP socket reports that an earlier datagram was sent to a closed port. As on other
// systems, only connected sockets should: on an unconnected socket the error would make a receive from any peer
// fail.
func setConnReset(h uintptr, on bool) {
	var v, n uint32
	if on {
		v = 1
	}
	for _, code := range [...]uint32{windows.SIO_UDP_CONNRESET, windows.SIO_UDP_NETRESET} {
		windows.WSAIoctl(windows.Handle(h), code, (*byte)(unsafe.Pointer(&v)), uint32(unsafe.Sizeof(v)), nil, 0, &n, nil, 0)
	}
}

// sysListen lets the system choose the maximum backlog.
func sysListen(h uintptr, backlog int) error {
	if backlog <= 0 {
		backlog = windows.SOMAXCONN
	}
	return windows.Listen(windows.Handle(h), backlog)
}

// sysListenOptions does not set SO_REUSEADDR. On Windows that option would let other programs take over the
// address, and it is not needed to bind an address that has connections in TIME_WAIT.
func sysListenOptions(h uintptr, a netip.AddrPort, o ListenOptions) error {
	if !a.Addr().Is4() {
		if err := sysDualStack(h, o.DualStack); err != nil {
			return err
		}
	}
	if o.ReusePort {
		return errors.ErrUnsupported
	}
	return nil
}

// sysAccept sets the mode of the new socket explicitly, and does not rely on what it inherits from the listener.
func sysAccept(h uintptr) (uintptr, error) {
	for {
		c, _, e := syscall.SyscallN(procAccept.Addr(), h, 0, 0)
		switch {
		case c != uintptr(windows.InvalidHandle):
		case e == windows.WSAECONNRESET, e == windows.WSAECONNABORTED: // the error of this connection: accept the next one
			continue
		default:
			return 0, blockedOr(e)
		}
		err := sysNonblock(c)
		if err == nil {
			err = windows.SetHandleInformation(windows.Handle(c), windows.HANDLE_FLAG_INHERIT, 0)
		}
		if err != nil {
			sysClose(c)
			return 0, err
		}
		return c, nil
	}
}

func sysNonblock(h uintptr) error {
	const fionbio = 0x8004667e
	on := uint32(1)
	if r, _, e := syscall.SyscallN(procIoctlsocket.Addr(), h, fionbio, uintptr(unsafe.Pointer(&on))); wantError(r) {
		return blockedOr(e)
	}
	return nil
}

func sysClose(h uintptr) error { return windows.Closesocket(windows.Handle(h)) }

func sysShutdown(h uintptr, how How) error { return windows.Shutdown(windows.Handle(h), int(how)) }

// sysIsTCP is called for connections of a listener that is not TCP itself. On Windows such connections are never TCP.
func sysIsTCP(uintptr) bool { return false }

// sysReusePort is not supported: SO_REUSEADDR lets several sockets use an address, but does not distribute connections.
func sysReusePort(uintptr, bool) error { return errors.ErrUnsupported }

func sysLinger(h uintptr, reset bool) error {
	l := windows.Linger{Onoff: int32(flag(reset))}
	return windows.SetsockoptLinger(windows.Handle(h), windows.SOL_SOCKET, windows.SO_LINGER, &l)
}

const (
	keepIdle     = windows.TCP_KEEPIDLE
	keepInterval = windows.TCP_KEEPINTVL
	keepCount    = windows.TCP_KEEPCNT
)

type (
	rawAny   = windows.RawSockaddrAny
	rawInet4 = windows.RawSockaddrInet4
	rawInet6 = windows.RawSockaddrInet6
)

const (
	afInet4   = windows.AF_INET
	afInet6   = windows.AF_INET6
	errNoAddr = windows.WSAEDESTADDRREQ
)

// callWithAddr makes a call whose arguments are a socket and an address.
func callWithAddr(proc *windows.LazyProc, h uintptr, a netip.AddrPort) error {
	var sa rawAny
	size, err := encode(a, &sa)
	if err != nil {
		return err
	}
	if r, _, e := syscall.SyscallN(proc.Addr(), h, uintptr(unsafe.Pointer(&sa)), size); wantError(r) {
		return blockedOr(e)
	}
	return nil
}

func sysBind(h uintptr, a netip.AddrPort) error { return callWithAddr(procBind, h, a) }

func sysConnect(h uintptr, a netip.AddrPort) error {
	if err := callWithAddr(procConnect, h, a); err != nil {
		return err
	}
	if typ, err := windows.GetsockoptInt(windows.Handle(h), windows.SOL_SOCKET, soType); err == nil && typ == windows.SOCK_DGRAM {
		setConnReset(h, true)
	}
	return nil
}

func sysRemoteAddr(h uintptr) netip.AddrPort { return name(procGetpeername, h) }

func sysLocalAddr(h uintptr) netip.AddrPort {
	if a := name(procGetsockname, h); a.IsValid() {
		return a
	}
	return unbound(h)
}

// unbound returns the unspecified address of the socket's family. Other systems return it for a socket that is not
// bound; Windows fails.
func unbound(h uintptr) netip.AddrPort {
	const soProtocolInfo = 0x2005
	var info windows.WSAProtocolInfo
	size := int32(unsafe.Sizeof(info))
	if windows.Getsockopt(windows.Handle(h), windows.SOL_SOCKET, soProtocolInfo, (*byte)(unsafe.Pointer(&info)), &size) != nil {
		return netip.AddrPort{}
	}
	switch info.AddressFamily {
	case windows.AF_INET:
		return netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	case windows.AF_INET6:
		return netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.AddrPort{}
}

func name(get *windows.LazyProc, h uintptr) netip.AddrPort {
	var sa rawAny
	size := int32(unsafe.Sizeof(sa))
	if r, _, _ := syscall.SyscallN(get.Addr(), h, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size))); wantError(r) {
		return netip.AddrPort{}
	}
	return decode(&sa)
}

func sysBindUnix(h uintptr, path string) error {
	return windows.Bind(windows.Handle(h), &windows.SockaddrUnix{Name: path})
}

// sysConnectUnix may be called again while the connection is in progress.
func sysConnectUnix(h uintptr, path string) error {
	switch err := windows.Connect(windows.Handle(h), &windows.SockaddrUnix{Name: path}); err {
	case windows.WSAEALREADY:
		return ErrWouldBlock
	case windows.WSAEISCONN:
		return nil
	default:
		return blocked(err)
	}
}

func sysLocalPath(h uintptr) string {
	sa, err := windows.Getsockname(windows.Handle(h))
	if err != nil {
		return ""
	}
	if u, ok := sa.(*windows.SockaddrUnix); ok && u.Name != "@" { // x/sys returns "@" for an unbound socket
		return u.Name
	}
	return ""
}

// UnixPair returns two connected Unix sockets: stream sockets, or datagram sockets. On Windows it supports stream
// sockets only, and creates them with a temporary listener.
func UnixPair(datagram bool) (a, b *Socket, err error) {
	const op = "socketpair"
	none := ^uintptr(0)
	if datagram {
		return nil, nil, &Error{op, none, errors.ErrUnsupported}
	}
	client, err := socket(Unix) // still blocking: connecting does not block, because the backlog has room
	if err != nil {
		return nil, nil, &Error{op, none, err}
	}
	if a, b, err = pair(client); err != nil {
		sysClose(client)
		return nil, nil, &Error{op, none, err}
	}
	return a, b, nil
}

func pair(client uintptr) (a, b *Socket, err error) {
	dir, err := os.MkdirTemp("", "sock")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	l, err := ListenUnix(path, ListenOptions{Backlog: 1})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if err := sysConnectUnix(client, path); err != nil {
		return nil, nil, err
	}
	if err := sysNonblock(client); err != nil {
		return nil, nil, err
	}
	if b, err = l.Accept(); err != nil {
		return nil, nil, err
	}
	return fromHandle(client, true, false), b, nil
}

func sysRecv(h uintptr, b []byte) (int, error) {
	kernelWrites(b)
	r, _, e := syscall.SyscallN(procRecv.Addr(), h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0)
	if wantError(r) {
		return recvError(b, e)
	}
	return int(int32(r)), nil
}

// recvError converts a failed receive to the result that other systems return.
func recvError(b []byte, e syscall.Errno) (int, error) {
	switch e {
	case windows.WSAEMSGSIZE: // the datagram was truncated
		return len(b), nil
	case windows.WSAESHUTDOWN: // receiving was shut down by Shutdown
		return 0, nil
	}
	return 0, blockedOr(e)
}

func sysSend(h uintptr, b []byte) (int, error) {
	kernelReads(b)
	r, _, e := syscall.SyscallN(procSend.Addr(), h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0)
	if wantError(r) {
		return 0, blockedOr(e)
	}
	return int(int32(r)), nil
}

func sysSendV(h uintptr, bufs [][]byte, stream bool) (int, error) {
	var few [maxVec][]byte
	n, ok := gather(&few, bufs, stream)
	if !ok {
		return 0, windows.WSAEMSGSIZE
	}
	if n == 0 && stream {
		return 0, nil
	}
	var vec [maxVec]windows.WSABuf
	for i, b := range few[:n] {
		vec[i] = windows.WSABuf{Len: uint32(len(b)), Buf: unsafe.SliceData(b)}
	}
	var sent uint32
	err := windows.WSASend(windows.Handle(h), &vec[0], uint32(max(n, 1)), &sent, 0, nil, nil)
	return int(sent), blocked(err)
}

func sysRecvFrom(h uintptr, b []byte) (int, netip.AddrPort, error) {
	var sa rawAny
	size := int32(unsafe.Sizeof(sa))
	kernelWrites(b)
	r, _, e := syscall.SyscallN(procRecvfrom.Addr(), h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
	n, err := int(int32(r)), error(nil)
	if wantError(r) {
		n, err = recvError(b, e)
	}
	return n, decode(&sa), err
}

func sysSendTo(h uintptr, b []byte, to netip.AddrPort) error {
	var sa rawAny
	size, err := encode(to, &sa)
	if err != nil {
		return err
	}
	kernelReads(b)
	r, _, e := syscall.SyscallN(procSendto.Addr(), h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(&sa)), size)
	if wantError(r) {
		return blockedOr(e)
	}
	return nil
}

// sysDescribe reports every socket as blocking, because Windows does not report the mode.
func sysDescribe(h uintptr) (d description, err error) {
	if err := winsock(); err != nil {
		return d, err
	}
	s := windows.Handle(h)
	typ, err := windows.GetsockoptInt(s, windows.SOL_SOCKET, soType)
	if err != nil {
		return d, err
	}
	listening, err := windows.GetsockoptInt(s, windows.SOL_SOCKET, soAcceptConn)
	if err != nil {
		return d, err
	}
	_, notTCP := windows.GetsockoptInt(s, windows.IPPROTO_TCP, windows.TCP_NODELAY) // only TCP sockets have this option
	d.stream = typ == windows.SOCK_STREAM
	d.tcp = d.stream && notTCP == nil
	d.listening = listening != 0
	d.blocking = true
	return d, nil
}

func sysDup(h uintptr) (uintptr, error) {
	var info windows.WSAProtocolInfo
	if err := windows.WSADuplicateSocket(windows.Handle(h), windows.GetCurrentProcessId(), &info); err != nil {
		return 0, err
	}
	const fromInfo = -1
	s, err := windows.WSASocket(fromInfo, fromInfo, fromInfo, &info, 0, socketFlags)
	return uintptr(s), err
}

// sysDetached dissociates a socket of package net from the completion port of Go's runtime, so that Attach can
// associate it again. An error is ignored, because the socket works without that. sysDetached must be called after
// package net has closed its handle, because the system refuses while I/O is in progress.
func sysDetached(h uintptr) {
	var status windows.IO_STATUS_BLOCK
	var none struct{ port, key uintptr }
	windows.NtSetInformationFile(windows.Handle(h), &status, (*byte)(unsafe.Pointer(&none)), uint32(unsafe.Sizeof(none)),
		windows.FileReplaceCompletionInformation)
}

func sysSendFile(h uintptr, f *os.File, offset int64, n int) (int, error) {
	return copyFile(h, f, offset, n)
}
