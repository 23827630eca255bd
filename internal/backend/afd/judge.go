package afd

// judge tells what a completed poll of one socket found, or 0. Only a successful one that counts a socket
// has filled in the events: one that was cancelled, timed out or transferred shows what it was asked for.
func judge(status, sockets, events uint32) uint32 {
	if status != 0 || sockets == 0 {
		return 0
	}
	return events
}
