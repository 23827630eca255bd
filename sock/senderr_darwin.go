package sock

import "golang.org/x/sys/unix"

// sendErr translates what the system says at times of a stream that the peer is just closing.
func sendErr(err error) error {
	if err == unix.EPROTOTYPE {
		return unix.ECONNRESET
	}
	return err
}
