//go:build !race

package sse

const raceDetector = false
