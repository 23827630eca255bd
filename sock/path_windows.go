package sock

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

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
