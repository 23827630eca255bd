package websocket

import (
	"bytes"
	"compress/flate"
	"io"
	"sync"
)

// permessage-deflate, RFC 7692. Neither side keeps its window between messages ("no context
// takeover"), so a connection needs no compressor, no decompressor and no window of 32 KiB while it
// is idle: they come from pools.

// A flushed block ends with flushTail, which is not sent. The receiver appends it again, and with
// it an empty final block, after which the reader returns io.EOF.
const flushTail = "\x00\x00\xff\xff"

var tail = []byte(flushTail + "\x01\x00\x00\xff\xff")

// mostDeflated returns the length that a message of n bytes may have before it is inflated. Deflate
// with fixed codes makes a byte at most nine bits.
func mostDeflated(n uint64) uint64 { return n + n/8 + 64 }

var inflaters = sync.Pool{New: func() any { return new(inflater) }}

type inflater struct {
	in   bytes.Reader
	tail bytes.Reader
	out  io.ReadCloser
}

// Read and ReadByte read from in, and then from tail. Because of ReadByte, package flate does not
// read ahead.
func (f *inflater) Read(p []byte) (int, error) {
	if f.in.Len() > 0 {
		return f.in.Read(p)
	}
	return f.tail.Read(p)
}

func (f *inflater) ReadByte() (byte, error) {
	if f.in.Len() > 0 {
		return f.in.ReadByte()
	}
	return f.tail.ReadByte()
}

// start begins to inflate what can be read. The first block cannot refer back to what was inflated
// before.
func (f *inflater) start() {
	if f.out == nil {
		f.out = flate.NewReader(f)
		return
	}
	f.out.(flate.Resetter).Reset(f, nil) // does not fail
}

// inflate appends the message that src is compressed from to dst, which is empty. If it has more
// than limit bytes, inflate fails with errTooBig, and has not allocated more than that and a byte
// at a time.
func inflate(dst, src []byte, limit uint64) ([]byte, error) {
	if len(src) == 0 {
		return dst, nil
	}
	f := inflaters.Get().(*inflater)
	defer func() {
		f.in.Reset(nil)
		inflaters.Put(f)
	}()
	f.in.Reset(src)
	f.tail.Reset(tail)
	f.start()
	for {
		if len(dst) == cap(dst) {
			dst = grow(dst, limit)
		}
		n, err := f.out.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case uint64(len(dst)) > limit:
			return dst, errTooBig
		case err == nil:
		case err != io.EOF:
			return dst, errNotDeflated
		case f.in.Len() > 0: // the block was marked as final, but others follow (7.2.1)
			f.start()
		case f.tail.Len() > 0 && f.tail.Len() < len(tail): // a block that is cut off ends in the tail
			return dst, errNotDeflated
		default:
			return dst, nil
		}
	}
}

// grow returns b with room for more. Its capacity is at most limit and one more, which shows that a
// message is too big.
func grow(b []byte, limit uint64) []byte {
	return append(make([]byte, 0, min(max(2*uint64(cap(b)), 1<<10), limit+1)), b...)
}

// A deflater compresses with one level.
type deflater struct {
	level int
	pool  sync.Pool // of *compressor
}

// A compressor writes to the buffer.
type compressor struct {
	*flate.Writer
	buffer appender
}

type appender []byte

func (a *appender) Write(p []byte) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}

// deflate appends the compressed payload to dst.
func (d *deflater) deflate(dst, payload []byte) []byte {
	c, ok := d.pool.Get().(*compressor)
	if ok {
		c.Reset(&c.buffer)
	} else {
		c = new(compressor)
		c.Writer, _ = flate.NewWriter(&c.buffer, d.level) // check has checked the level
	}
	c.buffer = dst
	c.Write(payload) // an appender does not fail
	c.Flush()
	dst, c.buffer = c.buffer, nil
	d.pool.Put(c)
	return dst[:len(dst)-len(flushTail)]
}
