package sock

import "golang.org/x/sys/unix"

// sendErr converts EPROTOTYPE, which Darwin sometimes returns while the peer is closing the stream.
func sendErr(err error) error {
	if err == unix.EPROTOTYPE {
		return unix.ECONNRESET
	}
	return err
}
