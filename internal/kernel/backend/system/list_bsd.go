//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package system

import (
	"github.com/socknotify/socknotify/internal/kernel/backend/kqueue"
	"github.com/socknotify/socknotify/internal/kernel/backend/poll"
)

// List returns the backends of macOS and the BSDs, the default first.
func List() []Backend {
	return []Backend{{"kqueue", kqueue.New}, {"poll", poll.New}}
}
