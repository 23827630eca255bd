// Package operation carries out overlapped operations on a port, for package overlapped: receives,
// sends, connects, accepts, and reads and writes of files. The key of an operation is beside it, in
// package overlapped.
//
// The files, in the order in which an operation passes them: overlapped.go reserves it, start.go
// starts it on its socket, operations.go has those in flight on a socket, operate.go carries them
// out, completion.go returns them to the port. pool.go has buffers for receives that wait without
// one. files.go is for files. errors.go has the errors.
package operation
