//go:build race

package park

const raceDetector = true
