package tlsrecord

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	headerSize = 5

	// MaxPlaintext is the number of bytes that a record carries.
	MaxPlaintext = 16 << 10
	// MaxRecord is the size of the largest record that is accepted, with its header. One that is
	// made here is smaller.
	MaxRecord = headerSize + MaxPlaintext + 2048

	maxExpansion13 = 256 // of a record of TLS 1.3, which may have padding

	// maxUseless is the number of records and messages without data that are accepted in a row.
	maxUseless = 16

	// keyLimit is the number of records after which a key is changed. RFC 8446, section 5.5, allows
	// 2^24.5 of full size.
	keyLimit = 1 << 24
)

// Types of records.
const (
	typeChangeCipherSpec = 20
	typeAlert            = 21
	typeHandshake        = 22
	typeData             = 23
)

var (
	errShutdown  = errors.New("tls: protocol is shutdown")
	errIgnored   = errors.New("tls: too many ignored records")
	errStalling  = errors.New("tls: too many non-advancing records")
	errTicket    = errors.New("tls: received new session ticket from a client")
	errBeforeKey = errors.New("tls: handshake buffer not empty before setting read traffic secret")
)

// Records are the records of a server's connection after its handshake. They do no I/O and have no
// lock: Length and Open belong to the goroutine that receives; all others, and Answer too, to the
// goroutine that sends. What Open wants to be sent is made by Answer, in the receiving goroutine
// while it has the sending side.
//
// Ciphers are made when they are needed. Drop and DropOut release them.
type Records struct {
	keys  []byte // of both directions
	in    half   // the receiving side
	out   half   // the sending side
	suite uint8  // index in suites

	// The receiving side.
	useless uint8 // records and messages since the last data
	message message
	owed    bool // an answer to a KeyUpdate
	alert   Alert
	alerts  bool // alert is to be sent

	// The sending side.
	notified bool // CloseNotify has been called
	broken   bool // what is below has failed, and nothing can be sent
}

// apart is added to the capacity of keys. Those of AES-128 would otherwise have the size class of a
// SHA-256, of which a handshake leaves many to the collector. Keys stay, so that most pages of that
// class could not be given back: park.HTTPServer would have 800 bytes of resident memory more for
// each idle connection.
const apart = 16

// newRecords returns records of a suite, without keys.
func newRecords(version, id uint16) (*Records, bool) {
	for i := range suites {
		if s := &suites[i]; s.version == version && s.id == id {
			n := 2 * s.size()
			return &Records{suite: uint8(i), keys: make([]byte, n, n+apart)}, true
		}
	}
	return nil, false
}

func (r *Records) is() *suite    { return &suites[r.suite] }
func (r *Records) inKeys() keys  { return r.keys[:len(r.keys)/2] }
func (r *Records) outKeys() keys { return r.keys[len(r.keys)/2:] }

// Length returns the size of a record, with its header, from the header.
func (r *Records) Length(header []byte) (int, error) {
	if err := r.in.err(); err != nil {
		return 0, err
	}
	version := binary.BigEndian.Uint16(header[1:])
	n := int(binary.BigEndian.Uint16(header[3:]))
	if version != tls.VersionTLS12 { // in records of TLS 1.3 too
		return 0, r.malformed(header, protocolVersion, fmt.Sprintf(
			"received record with version %x when expecting version %x", version, tls.VersionTLS12))
	}
	limit := MaxRecord - headerSize
	if r.is13() {
		limit = MaxPlaintext + maxExpansion13
	}
	if n > limit {
		return 0, r.malformed(header, recordOverflow,
			fmt.Sprintf("oversized record received with length %d", n))
	}
	return headerSize + n, nil
}

func (r *Records) is13() bool { return r.is().version == tls.VersionTLS13 }

// malformed ends the receiving side because of a header.
func (r *Records) malformed(header []byte, a Alert, text string) error {
	err := tls.RecordHeaderError{Msg: text}
	copy(err.RecordHeader[:], header)
	return r.refuse(a, err)
}

// refuse ends the receiving side with an alert, for Answer.
func (r *Records) refuse(a Alert, err error) error {
	r.alert, r.alerts = a, true
	r.in.end(err)
	return err
}

// Fail ends the receiving side, after a failure below it for instance.
func (r *Records) Fail(err error) { r.in.end(err) }

// Err returns what has ended the receiving side, or nil. It is io.EOF after the peer's
// close_notify.
func (r *Records) Err() error { return r.in.err() }

// Open decrypts a record to dst, which has room for all that is encrypted, or in place if dst is
// nil. It returns the data in it, which may be none. The error is final, and is what crypto/tls
// would return.
func (r *Records) Open(dst, record []byte) ([]byte, error) {
	if err := r.in.err(); err != nil {
		return nil, err
	}
	data, kind, a := r.decrypt(dst, record)
	switch {
	case a != 0:
	case len(data) > MaxPlaintext:
		a = recordOverflow
	case r.is13() && kind != typeHandshake && r.message.n > 0:
		a = unexpectedMessage // a message may not be interrupted (RFC 8446, section 5.1)
	}
	if a != 0 {
		return nil, r.refuse(a, local(a))
	}
	switch kind {
	case typeData:
		if len(data) == 0 {
			return nil, r.ignore()
		}
		r.useless = 0
		return data, nil
	case typeAlert:
		return nil, r.openAlert(data)
	case typeChangeCipherSpec:
		if len(data) != 1 || data[0] != 1 {
			return nil, r.refuse(decodeError, local(decodeError))
		}
		if r.is13() {
			return nil, r.ignore()
		}
	case typeHandshake:
		if len(data) > 0 {
			return nil, r.openMessages(data)
		}
	}
	return nil, r.refuse(unexpectedMessage, local(unexpectedMessage))
}

// read opens a record for a reader of data that has the buffer b. It returns how much of it was
// read and, where b may be too small, the rest, which is in the record.
func (r *Records) read(b, record []byte) (n int, rest []byte, err error) {
	if len(b) >= len(record)-headerSize-tagSize {
		data, err := r.Open(b, record)
		return len(data), nil, err
	}
	data, err := r.Open(nil, record)
	n = copy(b, data)
	return n, data[n:], err
}

// decrypt returns the content of a record and its type, or an alert. dst is as for Open.
func (r *Records) decrypt(dst, record []byte) (content []byte, kind byte, a Alert) {
	h := &r.in
	kind = record[0]
	content = record[headerSize:]
	is13 := r.is13()
	if is13 && kind == typeChangeCipherSpec {
		return content, kind, 0 // not encrypted (RFC 8446, appendix D.4)
	}
	w := h.cipher(r.is(), r.inKeys())
	var extra []byte
	if is13 {
		w.addNumber(h.seq)
		extra = record[:headerSize]
	} else {
		if len(content) < 8+tagSize {
			return nil, 0, badRecordMAC
		}
		copy(w.nonce[4:], content[:8])
		content = content[8:]
		extra = w.extra12(h.seq, record[:3], len(content)-tagSize)
	}
	if dst == nil {
		dst = content
	}
	content, err := w.aead.Open(dst[:0], w.nonce[:], content, extra)
	if is13 {
		w.addNumber(h.seq)
	}
	if err != nil {
		return nil, 0, badRecordMAC
	}
	if is13 {
		if content, kind, a = unpad(content, kind); a != 0 {
			return nil, 0, a
		}
	}
	h.seq++
	return content, kind, 0
}

// unpad removes the padding of TLS 1.3 and the type before it.
func unpad(content []byte, outer byte) (data []byte, kind byte, a Alert) {
	switch {
	case outer != typeData:
		return nil, 0, unexpectedMessage
	case len(content) > MaxPlaintext+1:
		return nil, 0, recordOverflow
	case len(content) == 0:
		return nil, typeData, 0
	}
	for i := len(content) - 1; i >= 0; i-- {
		if content[i] != 0 {
			return content[:i], content[i], 0
		}
	}
	return nil, 0, unexpectedMessage
}

// ignore counts a record that carries nothing.
func (r *Records) ignore() error {
	if r.useless++; r.useless > maxUseless {
		return r.refuse(unexpectedMessage, errIgnored)
	}
	return nil
}

func (r *Records) openAlert(data []byte) error {
	if len(data) != 2 {
		return r.refuse(unexpectedMessage, local(unexpectedMessage))
	}
	const warning, fatal = 1, 2
	level, a := data[0], Alert(data[1])
	switch {
	case a == closeNotify:
		r.in.end(io.EOF)
		return io.EOF
	case r.is13() && a == userCanceled: // many stacks send it before close_notify
		return r.ignore()
	case r.is13() || level == fatal:
		r.in.end(remote(a))
		return r.in.err()
	case level == warning:
		return r.ignore()
	}
	return r.refuse(unexpectedMessage, local(unexpectedMessage))
}

// Append appends records with data to dst.
func (r *Records) Append(dst, data []byte) ([]byte, error) {
	if err := r.out.err(); err != nil {
		return dst, err
	}
	for len(data) > 0 {
		n := min(len(data), MaxPlaintext)
		if r.is13() && r.out.seq >= keyLimit {
			dst = r.appendUpdate(dst)
		}
		dst = r.seal(dst, typeData, data[:n])
		data = data[n:]
	}
	return dst, nil
}

// Answer appends what Open wants to be sent to dst: an alert, which ends the sending side too, or a
// KeyUpdate. Several requests for a KeyUpdate have one answer if they came before it.
func (r *Records) Answer(dst []byte) []byte {
	if r.out.err() != nil {
		r.owed, r.alerts = false, false
		return dst
	}
	if r.owed {
		r.owed = false
		dst = r.appendUpdate(dst)
	}
	if r.alerts {
		r.alerts = false
		dst = r.appendAlert(dst, r.alert)
		r.out.end(local(r.alert))
	}
	return dst
}

// Owes reports whether Answer has something to send.
func (r *Records) Owes() bool { return r.owed || r.alerts }

// CloseNotify appends a close_notify to dst, and ends the sending side. It does so after another
// alert too, as crypto/tls does.
func (r *Records) CloseNotify(dst []byte) []byte {
	if r.notified || r.broken {
		return dst
	}
	r.notified = true
	r.endOut(errShutdown)
	return r.appendAlert(dst, closeNotify)
}

// FailOut ends the sending side: nothing can be sent any more.
func (r *Records) FailOut(err error) {
	r.broken = true
	r.endOut(err)
}

// endOut ends the sending side, unless it has ended.
func (r *Records) endOut(err error) {
	if r.out.err() == nil {
		r.out.end(err)
	}
}

func (r *Records) appendAlert(dst []byte, a Alert) []byte {
	return r.seal(dst, typeAlert, []byte{a.level(), byte(a)})
}

// Overhead is the number of bytes that a record adds to its data at most.
const Overhead = headerSize + 8 + tagSize

// seal appends one record.
func (r *Records) seal(dst []byte, kind byte, data []byte) []byte {
	h := &r.out
	w := h.cipher(r.is(), r.outKeys())
	start := len(dst)
	dst = append(dst, kind, tls.VersionTLS12>>8, tls.VersionTLS12&0xff, 0, 0)
	if r.is13() {
		dst[start] = typeData
		body := len(dst)
		dst = append(append(dst, data...), kind)
		header := dst[start:body]
		binary.BigEndian.PutUint16(header[3:], uint16(len(data)+1+tagSize))
		w.addNumber(h.seq)
		dst = w.aead.Seal(dst[:body], w.nonce[:], dst[body:], header)
		w.addNumber(h.seq)
	} else {
		dst = binary.BigEndian.AppendUint64(dst, h.seq) // the rest of the nonce
		binary.BigEndian.PutUint64(w.nonce[4:], h.seq)
		extra := w.extra12(h.seq, dst[start:start+3], len(data))
		dst = w.aead.Seal(dst, w.nonce[:], data, extra)
		binary.BigEndian.PutUint16(dst[start+3:], uint16(len(dst)-start-headerSize))
	}
	h.seq++
	return dst
}

// Drop releases the cipher of the receiving side, DropOut that of the sending side. The next record
// makes it again.
func (r *Records) Drop()    { r.in.drop() }
func (r *Records) DropOut() { r.out.drop() }

// WipeIn ends the receiving side and overwrites its secrets, WipeOut those of the sending side.
func (r *Records) WipeIn(err error) {
	if r.in.err() == nil {
		r.in.end(err)
	}
	r.in.rekey()
	clear(r.inKeys())
}

func (r *Records) WipeOut(err error) {
	r.FailOut(err)
	r.out.rekey()
	clear(r.outKeys())
}
