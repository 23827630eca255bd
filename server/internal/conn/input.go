package conn

// An input has the bytes that were received for Peek, Next, Discard, Line and Until, and that the
// handler has not consumed. A connection has one from the first of these calls until the handler's
// call returns, and longer while bytes are left. wInput says that it has one. Its extra is not
// replaced before that bit is cleared, so the owner uses extra.in without the connection's lock.
// After Pause another goroutine may use the input before the worker has returned from Data. It sets
// held first, with the lock held, and then the worker leaves the input alone until Resume: the next
// call of the handler takes it back (see beginCall).
type input struct {
	buf      *buffer
	old      *buffer // earlier buffers, which slices that the handler was given may point to
	pos, end int     // buf.b[pos:end] was not consumed
	mark     int     // the position of Mark, or -1
	beyond   bool    // Read has taken more since Mark than MaxMessage, which is not kept
	receives int     // during this call of the handler
	consumed int     // bytes that were consumed during this call and not unread
	refused  bool    // a call of the input was refused because the write queue is full
	ended    bool    // a call has returned the end of the stream
	held     bool    // used after Pause, by a goroutine that may have slices until Resume

	// want is what the latest call of the input that failed waits for. A positive number means want
	// bytes from pos. A negative number means the byte delim, within -want bytes. 0 means any byte.
	// Data is not called before they have arrived, or the stream has ended.
	want  int
	delim byte
	half  uint32 // tick since which there is half a message; 0 if there is not
}

// start returns the position at which the current message begins.
func (in *input) start() int {
	if in.mark >= 0 {
		return in.mark
	}
	return in.pos
}

// left returns by how many bytes from pos the current message may go on if it may have most. It is
// negative if the message is too long.
func (in *input) left(most int) int {
	if in.beyond {
		return -1
	}
	return most - (in.pos - in.start())
}

// consume consumes n bytes.
func (in *input) consume(n int) []byte {
	b := in.buf.b[in.pos : in.pos+n : in.pos+n]
	in.pos += n
	in.consumed += n
	return b
}

// unread goes back to the mark.
func (in *input) unread() {
	in.consumed -= in.pos - in.start()
	in.pos = in.start()
}

// setBytes makes b the bytes that were not consumed, and copies them.
func (in *input) setBytes(from *buffers, b []byte) {
	in.setBuffer(from.get(len(b)))
	in.pos, in.end, in.mark, in.beyond = 0, copy(in.buf.b, b), -1, false
}

// setBuffer replaces the buffer. The handler may have slices of the earlier one until its call
// returns.
func (in *input) setBuffer(b *buffer) {
	if in.buf != nil {
		in.buf.next, in.old = in.old, in.buf
	}
	in.buf = b
}

// makeRoom makes room behind the bytes that are there, for n from pos, in buffers that have size
// bytes or more. The handler may have slices of all buffers,
// so no byte is moved within one. Since peers announce lengths, the memory grows with what has
// arrived, and not with n.
func (in *input) makeRoom(from *buffers, size, n int) {
	if in.buf == nil {
		in.buf = from.get(size)
		in.pos, in.end, in.mark = 0, 0, min(in.mark, 0)
		return
	}
	start := in.start()
	have := in.end - start
	room, much := len(in.buf.b)-in.end, max(min(size, DefaultBuffer)/2, 1)
	if room >= much || room >= n-(in.end-in.pos) && room >= have {
		return
	}
	next := from.get(max(size, 2*have, min(n+in.pos-start, 4*have)))
	copy(next.b, in.buf.b[start:in.end])
	in.setBuffer(next)
	in.pos, in.end = in.pos-start, have
	if in.mark >= 0 {
		in.mark = 0
	}
}
