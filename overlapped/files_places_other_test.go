//go:build !linux

package overlapped

import "testing"

const directFlag = 0

func filePlaces(t *testing.T) []filePlace {
	t.Helper()
	return []filePlace{{dir: t.TempDir()}}
}

func kernelThreads(*testing.T) int { return 0 }
