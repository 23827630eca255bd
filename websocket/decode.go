package websocket

import (
	"encoding/binary"
	"math"
	"time"
	"unicode/utf8"
)

// The operation codes of frames. Those of messages are Kinds.
const (
	opContinuation = 0
	opClose        = 8
	opPing         = 9
	opPong         = 10
)

const (
	maxHeader  = 14  // bytes of a frame before its payload
	maxControl = 125 // bytes of the payload of a control frame
	// keepBuffer is the capacity beyond which a pooled buffer is left to the garbage collector.
	keepBuffer = 64 << 10
)

// A header is what precedes the payload of a frame.
type header struct {
	final      bool
	compressed bool
	op         byte
	mask       [4]byte
	length     uint64
}

func (h *header) isControl() bool { return h.op >= opClose }

// parseHeader parses the header of a frame from a client. It returns the number of bytes of the header, or 0 if b is too
// short. compression reports whether permessage-deflate was negotiated. The errors are *CloseErrors.
func parseHeader(b []byte, compression bool) (h header, n int, err error) {
	if len(b) < 2 {
		return h, 0, nil
	}
	h.final, h.compressed, h.op = b[0]&0x80 != 0, b[0]&0x40 != 0, b[0]&0x0f
	short := b[1] & 0x7f
	switch {
	case b[0]&0x30 != 0, h.compressed && !(compression && (h.op == byte(Text) || h.op == byte(Binary))):
		return h, 0, protocolError("reserved bit is set")
	case h.op > byte(Binary) && h.op < opClose, h.op > opPong:
		return h, 0, protocolError("unknown operation code")
	case h.isControl() && !h.final:
		return h, 0, protocolError("fragmented control frame")
	case h.isControl() && short > maxControl:
		return h, 0, protocolError("control frame of more than 125 bytes")
	case b[1]&0x80 == 0:
		return h, 0, protocolError("frame is not masked")
	}
	n = 2
	switch short {
	case 126:
		if n += 2; len(b) < n {
			return h, 0, nil
		}
		h.length = uint64(binary.BigEndian.Uint16(b[2:]))
		if h.length < 126 {
			return h, 0, protocolError("length is not minimal")
		}
	case 127:
		if n += 8; len(b) < n {
			return h, 0, nil
		}
		h.length = binary.BigEndian.Uint64(b[2:])
		if h.length>>63 != 0 {
			return h, 0, protocolError("length of more than 63 bits")
		}
		if h.length < 1<<16 {
			return h, 0, protocolError("length is not minimal")
		}
	default:
		h.length = uint64(short)
	}
	if n += 4; len(b) < n {
		return h, 0, nil
	}
	h.mask = [4]byte(b[n-4:])
	return h, n, nil
}

// limits are what a decoder needs to know of its connection.
type limits struct {
	frame, message uint64 // bytes of a payload
	compression    bool   // permessage-deflate was negotiated
}

// An arrival is a message or a control frame.
type arrival struct {
	op         byte // 0: nothing is complete yet
	compressed bool
	payload    []byte // valid until the next call of next
}

// A decoder joins the bytes of a connection to messages and control frames, in pieces of any size. A connection has one
// only while something is incomplete, or being handled.
type decoder struct {
	head  [maxHeader]byte
	headN int // bytes of an incomplete header

	inFrame bool // the header is complete, the payload is not
	frame   header
	left    uint64 // bytes of the payload to come
	masked  int    // bytes of the payload so far, modulo 4

	kind       Kind // of the message that has begun, or 0
	compressed bool
	message    []byte // payload so far
	valid      int    // bytes of message that are known to be UTF-8
	control    []byte // payload of a control frame so far

	inflated []byte // see inflate
	began    time.Duration
}

// idle reports whether nothing is incomplete.
func (d *decoder) idle() bool { return d.headN == 0 && !d.inFrame && d.kind == 0 }

// reset makes d idle. It keeps buffers that are not large.
func (d *decoder) reset() {
	keep := func(b []byte) []byte {
		if cap(b) > keepBuffer {
			return nil
		}
		return b[:0]
	}
	*d = decoder{message: keep(d.message), control: d.control[:0], inflated: keep(d.inflated)}
}

// next consumes bytes of b, at most until a message or a control frame is complete. It returns the number of bytes that
// it has consumed. It unmasks in place: a payload may be a part of b. The errors are *CloseErrors; the decoder cannot
// be used after one.
func (d *decoder) next(b []byte, limit *limits) (a arrival, used int, err error) {
	if !d.inFrame {
		if used, err = d.header(b, limit); err != nil || !d.inFrame {
			return a, used, err
		}
		b = b[used:]
	}
	n := int(min(uint64(len(b)), d.left))
	part := b[:n]
	unmask(part, d.frame.mask, d.masked)
	d.left -= uint64(n)
	d.masked = (d.masked + n) & 3
	used += n
	if d.frame.isControl() {
		if d.left == 0 && len(d.control) == 0 {
			a.payload = part
		} else {
			d.control = append(d.control, part...)
			a.payload = d.control
		}
		if d.left == 0 {
			a.op = d.frame.op
			d.inFrame, d.control = false, d.control[:0]
		}
		return a, used, nil
	}
	whole := d.left == 0 && d.frame.final
	if whole && len(d.message) == 0 {
		a.payload = part
	} else {
		d.message = append(d.message, part...)
		a.payload = d.message
	}
	if d.kind == Text && !d.compressed {
		if d.valid += validPrefix(a.payload[d.valid:]); d.valid < 0 || whole && d.valid < len(a.payload) {
			return a, used, errNotUTF8
		}
	}
	if d.left > 0 {
		return arrival{}, used, nil
	}
	d.inFrame = false
	if !whole {
		return arrival{}, used, nil
	}
	a.op, a.compressed = byte(d.kind), d.compressed
	d.kind, d.valid = 0, 0
	d.message = d.message[:0] // its bytes stay until the next call
	return a, used, nil
}

// header consumes the bytes of a header.
func (d *decoder) header(b []byte, limit *limits) (used int, err error) {
	from := b
	before := d.headN
	if before > 0 {
		d.headN += copy(d.head[before:], b)
		from = d.head[:d.headN]
	}
	h, n, err := parseHeader(from, limit.compression)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		if before == 0 {
			d.headN = copy(d.head[:], b)
		}
		return len(b), nil
	}
	used = n - before
	d.headN = 0
	most := limit.message
	if h.compressed || h.op == opContinuation && d.compressed {
		most = mostDeflated(most)
	}
	switch {
	case h.isControl():
	case h.op == opContinuation && d.kind == 0:
		return 0, protocolError("continuation without a beginning")
	case h.op != opContinuation && d.kind != 0:
		return 0, protocolError("message within a message")
	case h.length > limit.frame, h.length > most-uint64(len(d.message)):
		return 0, errTooBig
	case h.op != opContinuation:
		d.kind, d.compressed = Kind(h.op), h.compressed
	}
	d.frame, d.left, d.masked, d.inFrame = h, h.length, 0, true
	return used, nil
}

// validPrefix returns the length of the part of b that is UTF-8, without a character at the end of which bytes are
// missing. It returns a large negative number if b cannot become UTF-8.
func validPrefix(b []byte) int {
	if utf8.Valid(b) {
		return len(b)
	}
	// Only the last three bytes can be the beginning of a character.
	for i := len(b) - 1; i >= 0 && i >= len(b)-3; i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) || !utf8.Valid(b[:i]) {
				break
			}
			return i
		}
	}
	return math.MinInt
}

// unmask applies a mask to b, whose first byte is at position from of the payload.
func unmask(b []byte, mask [4]byte, from int) {
	var m [8]byte
	for i := range m {
		m[i] = mask[(from+i)&3]
	}
	eight := binary.LittleEndian.Uint64(m[:])
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^eight)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= m[i]
	}
}

// appendHeader appends the header of a frame to a client.
func appendHeader(b []byte, op byte, compressed bool, length int) []byte {
	first := 0x80 | op
	if compressed {
		first |= 0x40
	}
	switch {
	case length < 126:
		return append(b, first, byte(length))
	case length < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, first, 126), uint16(length))
	default:
		return binary.BigEndian.AppendUint64(append(b, first, 127), uint64(length))
	}
}
