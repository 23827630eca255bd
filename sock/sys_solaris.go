//go:build !illumos

package sock

const (
	reusePort = 0

	// Since 11.4. The numbers in x/sys are those of illumos.
	keepIdle     = 0x1d
	keepInterval = 0x1e
	keepCount    = 0x1f
)

func noSignal(int) error { return nil }
