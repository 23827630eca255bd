//go:build unix && !darwin

package poll

import "math"

const maxEntries = math.MaxInt32
