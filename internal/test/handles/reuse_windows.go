package handles

import (
	"slices"
	"sync"

	"golang.org/x/sys/windows"
)

// Dup returns a duplicate handle of a socket.
func Dup(socket uintptr) (uintptr, error) {
	var info windows.WSAProtocolInfo
	if err := windows.WSADuplicateSocket(windows.Handle(socket), windows.GetCurrentProcessId(), &info); err != nil {
		return 0, err
	}
	const fromInfo = -1
	h, err := windows.WSASocket(fromInfo, fromInfo, fromInfo, &info, 0, windows.WSA_FLAG_OVERLAPPED|windows.WSA_FLAG_NO_HANDLE_INHERIT)
	return uintptr(h), err
}

// Spares holds spare handles. DupAt temporarily closes the lowest of them, because Wine assigns the lowest free
// number, and other threads take numbers too.
type Spares struct {
	mu      sync.Mutex
	handles [32]windows.Handle
}

// NewSpares returns new spare handles. They are never closed.
func NewSpares() *Spares {
	s := new(Spares)
	for i := range s.handles {
		s.handles[i], _ = windows.CreateEvent(nil, 0, 0, nil)
	}
	return s
}

// DupAt duplicates a socket until a duplicate has the given number, which must be free. It closes the other
// duplicates. After the given number of tries it returns the last duplicate, whatever its number.
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
		// WSADuplicateSocket temporarily opens a handle of the process, which would take the number each time.
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
