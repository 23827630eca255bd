package afd

import (
	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/winsock"
)

// pollNow polls a socket without waiting and returns the events that hold. Its helper handle has no port, and is
// synchronous: calls on it return when they are complete.
func (p *Poller) pollNow(base uintptr, events uint32) uint32 {
	var iosb windows.IO_STATUS_BLOCK
	info := pollInfo{sockets: 1, socket: base, events: events}
	status := poll(p.syncHelper, 0, &iosb, &info)
	return judge(uint32(status), info.sockets, info.events) & events &^ localClose
}

// PollOne implements backend.Poller.
func (p *Poller) PollOne(handle uintptr) backend.Mask {
	kind, err := winsock.Describe(handle)
	if err != nil {
		return 0
	}
	base, err := winsock.Base(handle)
	if err != nil {
		return 0
	}
	events := p.pollNow(base, interest(backend.In|backend.Urgent|backend.Out))
	return mask(events, kind == backend.Stream)
}
