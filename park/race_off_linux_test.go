//go:build !race

package park

const raceDetector = false
