//go:build !race

package websocket

const raceDetector = false
