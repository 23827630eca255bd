package handles

import (
	"slices"
	"sync"

	"golang.org/x/sys/windows"
)

// Dup makes a second handle of a socket.
func Dup(socket uintptr) (uintptr, error) {
	var info windows.WSAProtocolInfo
	if err := windows.WSADuplicateSocket(windows.Handle(socket), windows.GetCurrentProcessId(), &info); err != nil {
		return 0, err
	}
	const fromInfo = -1
	h, err := windows.WSASocket(fromInfo, fromInfo, fromInfo, &info, 0, windows.WSA_FLAG_OVERLAPPED|windows.WSA_FLAG_NO_HANDLE_INHERIT)
	return uintptr(h), err
}

// Spares are handles of which DupAt closes one for a moment: the lowest, because Wine gives out the lowest
// number that is free, and other threads take some, too.
type Spares struct {
	mu      sync.Mutex
	handles [32]windows.Handle
}

// NewSpares makes them. They are for the life of the process.
func NewSpares() *Spares {
	s := new(Spares)
	for i := range s.handles {
		s.handles[i], _ = windows.CreateEvent(nil, 0, 0, nil)
	}
	return s
}

// DupAt makes duplicates of a socket until one has a number that is free, and keeps that one alone. After so
// many tries it gives the last of them, whatever its number.
func (s *Spares) DupAt(socket, number uintptr, tries int) (h uintptr, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var others []uintptr
	defer func() {
		for _, o := range others {
			windows.Closesocket(windows.Handle(o))
		}
	}()
	for i := range tries {
		// WSADuplicateSocket first opens the process, and would take the very number each time.
		slices.Sort(s.handles[:])
		windows.CloseHandle(s.handles[0])
		h, err = Dup(socket)
		s.handles[0], _ = windows.CreateEvent(nil, 0, 0, nil)
		if err != nil || h == number || i == tries-1 {
			break
		}
		others = append(others, h)
	}
	return h, err
}
