// Package stream serves connections to which any goroutine may write at any time, such as those of a
// chat or of a queue. An idle [Stream] needs no goroutine and no buffer.
//
// [Streams] take connections of package net, and those of requests of HTTP/1.1 and HTTP/2. Packages
// websocket and sse are protocols on it. docs/streams.md compares them.
//
// The causes of streams that have ended have the names that they have in package park, such as
// park.ErrIdle.
package stream

// The files. A stream passes these:
//
//	streams.go  Streams: a connection becomes a stream, and Shutdown
//	stream.go   the stream reads, waits and ends
//	write.go    bytes are written, or queued
//	errors.go
//
// internal/serving/carrier has how a connection is read, written and parked, whatever it is, and
// internal/serving/group how many streams there are, and how they end.
