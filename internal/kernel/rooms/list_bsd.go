//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package rooms

import (
	"github.com/socknotify/socknotify/internal/kernel/kqueue"
	"github.com/socknotify/socknotify/internal/kernel/poll"
)

// List returns the backends of macOS and the BSDs.
func List() []Room {
	return []Room{{"kqueue", kqueue.New}, {"poll", poll.New}}
}
