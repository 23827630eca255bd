package afd

// judge returns the events that a completed poll of one socket found. Only a successful poll with a socket count above 0
// has filled in the events. After a cancelled, timed out or transferred poll, events still has the events asked for, so
// judge returns 0.
func judge(status, sockets, events uint32) uint32 {
	if status != 0 || sockets == 0 {
		return 0
	}
	return events
}
