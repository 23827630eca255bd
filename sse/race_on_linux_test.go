//go:build race

package sse

const raceDetector = true
