//go:build race

package http2

const raceDetector = true
