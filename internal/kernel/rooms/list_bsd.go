//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package rooms

import (
	"github.com/socknotify/socknotify/internal/kernel/kqueue"
	"github.com/socknotify/socknotify/internal/kernel/poll"
)

// sure returns the rooms of macOS and the BSDs.
func sure() []Room {
	return []Room{{"kqueue", kqueue.New}, {"poll", poll.New}}
}
