package websocket

import (
	"bytes"
	"compress/flate"
	"io"
	"sync"
)

// permessage-deflate, RFC 7692. Neither side keeps its window between messages ("no context takeover"), so a connection
// needs no compressor, no decompressor and no window of 32 KiB while it is idle: they come from pools.

// A flushed block ends with flushTail, which is not sent. The receiver appends it again, and with it an empty final block,
// after which the reader returns io.EOF.
const (
	flushTail = "\x00\x00\xff\xff"
	finalTail = "\x01\x00\x00\xff\xff"
)

var inflaters = sync.Pool{New: func() any { return new(inflater) }}

type inflater struct {
	in   bytes.Reader
	tail bytes.Reader
	both joined
	out  io.ReadCloser
}

// joined is io.MultiReader with the ReadByte method that package flate needs in order not to read ahead.
type joined struct{ first, second *bytes.Reader }

func (j *joined) Read(p []byte) (int, error) {
	if j.first.Len() > 0 {
		return j.first.Read(p)
	}
	return j.second.Read(p)
}

func (j *joined) ReadByte() (byte, error) {
	if j.first.Len() > 0 {
		return j.first.ReadByte()
	}
	return j.second.ReadByte()
}

// inflate appends the message that src is compressed from to dst. If it has more than limit bytes, inflate fails with
// errTooBig, and has not inflated more than that.
func inflate(dst, src []byte, limit uint64) ([]byte, error) {
	if len(src) == 0 {
		return dst, nil
	}
	f := inflaters.Get().(*inflater)
	f.in.Reset(src)
	f.tail.Reset([]byte(flushTail + finalTail))
	f.both = joined{&f.in, &f.tail}
	if f.out == nil {
		f.out = flate.NewReader(&f.both)
	} else {
		f.out.(flate.Resetter).Reset(&f.both, nil)
	}
	defer func() {
		f.in.Reset(nil)
		inflaters.Put(f)
	}()
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := f.out.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if uint64(len(dst)) > limit {
			return dst, errTooBig
		}
		switch {
		case err == io.EOF && f.in.Len() <= 1: // a sender that ends with a final block appends a byte of zeros
			return dst, nil
		case err != nil:
			return dst, errNotDeflated
		}
	}
}

// A deflater is a compressor of one level.
type deflater struct {
	level int
	pool  sync.Pool
}

// deflate appends the compressed payload to dst.
func (d *deflater) deflate(dst, payload []byte) []byte {
	w, ok := d.pool.Get().(*flate.Writer)
	out := appender(dst)
	if ok {
		w.Reset(&out)
	} else {
		w, _ = flate.NewWriter(&out, d.level) // Serve has checked the level
	}
	w.Write(payload) // an appender does not fail
	w.Flush()
	w.Reset(io.Discard)
	d.pool.Put(w)
	return out[:len(out)-len(flushTail)]
}

type appender []byte

func (a *appender) Write(p []byte) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}
