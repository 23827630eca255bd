// Package observe looks into a live port, for package debug: snapshots of its registrations, what
// they have notified, the addresses of their sockets, and traces.
//
// The files, in the order in which a program asks: snapshot.go lists registrations and names their
// sockets, recorder.go records what they notify, trace.go has the ring of the latest entries.
package observe
