// Package stream keeps the events of durable topics in a stream of JetStream. An event passes its files
// in this order:
//
//	publish.go  an event is stored, and JetStream's acknowledgement is waited for
//	layout.go   the streams over which topics are spread
//	make.go     the stream, which republishes what it has stored: made, changed, or restored
//	state.go    what the stream's leader says of it, asked once for all that ask at the same time
//	store.go    what is wrong with the folder of a server
//	read.go     reading events, with the spans that the stream has lost
//	backup.go   writing the stream to a file, and making it from one
package stream
