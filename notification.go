package socknotify

// A Notification is one dequeued packet (OVERLAPPED_ENTRY): a socket's notification, a
// registration's removal, a completion posted by [Port.Post], or a
// connection accepted for [Port.Accept].
type Notification[K comparable] struct {
	// Key is the registration's, or the one given to Post.
	Key K
	// Data is what Post was given; 0 otherwise.
	Data uintptr
	// Events is what the socket reported (SocketNotificationRetrieveEvents): bits of the
	// registration's filter and EventErr, or EventRemove alone; 0 for a post.
	Events Events

	posted   bool
	accepted any // the *sock.Socket of Accept, or an error
}

// Posted reports whether the notification came from [Port.Post] rather than a socket (Q4).
func (n Notification[K]) Posted() bool { return n.posted }
