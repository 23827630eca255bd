// Package operation carries out overlapped operations on a port, for package overlapped: receives,
// sends, connects, accepts, and reads and writes of files. The key of an operation is beside it, in
// package overlapped.
//
// The files, in the order in which an operation passes them: overlapped.go reserves it, and has
// buffers for receives that wait without one, start.go starts it on its socket, operations.go has
// those in flight on a socket and returns them to the port, operate.go carries them out. files.go
// is for files. errors.go has the errors.
package operation
