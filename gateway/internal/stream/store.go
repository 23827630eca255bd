package stream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrStore is that of package gateway.
var ErrStore = errors.New("gateway: start: wrong folder")

// CheckStore reports what is wrong with a folder. nats-server deletes streams that its cluster does
// not know of, and a member's folder alone is no quorum.
func CheckStore(store string, clustered bool) error {
	root := filepath.Join(store, "jetstream")
	_, err := os.Stat(filepath.Join(root, "$SYS", "_js_", "_meta_"))
	member := err == nil
	streams, _ := os.ReadDir(filepath.Join(root, "$G", "streams"))
	switch {
	case clustered && !member && len(streams) > 0:
		return fmt.Errorf("%w: %s has a single node's events; start the cluster with an empty folder and a backup of them",
			ErrStore, store)
	case !clustered && member:
		return fmt.Errorf("%w: %s belongs to a member of a cluster", ErrStore, store)
	}
	return nil
}
