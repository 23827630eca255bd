package tlsrecord

import "encoding/binary"

// recordSize returns the size of a record, with its header.
func recordSize(header []byte) int {
	return headerSize + int(binary.BigEndian.Uint16(header[3:]))
}

// A cutter follows the records of bytes that are given to crypto/tls. One call of Read must give no
// more than the current record. So crypto/tls never has the beginning of the next record, of which
// the rest of the program would not know.
type cutter struct {
	head    [headerSize]byte // of the current record
	n       uint8            // bytes of head that were given
	left    int              // bytes of its body that were not given
	records int              // whose header was given
}

// part returns how many of the next bytes belong to the current record, and goes on by as many.
func (c *cutter) part(b []byte) (n int) {
	if c.left == 0 {
		n = copy(c.head[c.n:], b)
		if c.n += uint8(n); c.n < headerSize {
			return n
		}
		c.n, c.left = 0, recordSize(c.head[:])-headerSize
		c.records++
	}
	k := min(c.left, len(b)-n)
	c.left -= k
	return n + k
}

// between reports whether the bytes that were given end with a record.
func (c *cutter) between() bool { return c.n == 0 && c.left == 0 }

// Begins reports whether b, the first bytes of a client, has the whole first record, or begins with
// something that crypto/tls refuses without waiting for the rest.
func Begins(b []byte) bool {
	if len(b) < headerSize {
		return false
	}
	n := recordSize(b)
	if b[0] != typeHandshake && b[0] != typeAlert || b[1] >= 0x10 || n > MaxRecord {
		return true
	}
	return len(b) >= n
}
