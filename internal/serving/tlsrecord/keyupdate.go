package tlsrecord

import "fmt"

// Types of handshake messages.
const (
	messageHelloRequest   = 0
	messageSessionTicket  = 4
	messageCertificate    = 11
	messageFinished       = 20
	messageKeyUpdate      = 24
	maxMessage            = 64 << 10
	maxCertificateMessage = 256 << 10
)

// A message is the part of a handshake message that has arrived. The only one with a body that is
// accepted is a KeyUpdate. All others are refused by their head.
type message struct {
	b [4 + 1]byte
	n uint8
}

// openMessages reads the handshake messages in a record.
func (r *Records) openMessages(data []byte) error {
	m := &r.message
	for len(data) > 0 {
		if m.n < 4 {
			n := copy(m.b[m.n:4], data)
			m.n += uint8(n)
			data = data[n:]
			if m.n < 4 {
				return nil
			}
			if err := r.head(m.b[0], int(m.b[1])<<16|int(m.b[2])<<8|int(m.b[3])); err != nil {
				return err
			}
			continue
		}
		m.b[4], m.n = data[0], 0
		if err := r.keyUpdate(m.b[4], len(data) > 1); err != nil {
			return err
		}
		data = data[1:]
	}
	return nil
}

// head judges a message by its type and length. Only a KeyUpdate is no error.
func (r *Records) head(kind byte, n int) error {
	limit := maxMessage
	if kind == messageCertificate {
		limit = maxCertificateMessage
	}
	name := r.messageName(kind)
	switch {
	case n > limit:
		return r.refuse(internalError, fmt.Errorf(
			"tls: handshake message of length %d bytes exceeds maximum of %d bytes", n, limit))
	case name == "":
		return r.refuse(unexpectedMessage, local(unexpectedMessage))
	case !r.is13():
		if kind != messageHelloRequest {
			return r.refuse(unexpectedMessage, fmt.Errorf(
				"tls: received unexpected handshake message of type *tls.%s"+
					" when waiting for *tls.helloRequestMsg", name))
		}
		if n > 0 {
			return r.refuse(decodeError, local(decodeError))
		}
		return r.refuse(noRenegotiation, local(noRenegotiation))
	case kind == messageKeyUpdate:
		if n != 1 {
			return r.refuse(decodeError, local(decodeError))
		}
		return nil
	case kind == messageSessionTicket:
		return r.refuse(unexpectedMessage, errTicket)
	}
	return r.refuse(unexpectedMessage, fmt.Errorf(
		"tls: received unexpected handshake message of type *tls.%s", name))
}

// keyUpdate changes the key of the receiving side.
func (r *Records) keyUpdate(request byte, followed bool) error {
	if request > 1 {
		return r.refuse(decodeError, local(decodeError))
	}
	if r.useless++; r.useless > maxUseless {
		return r.refuse(unexpectedMessage, errStalling)
	}
	if request == 1 {
		r.owed = true
	}
	if followed {
		return r.refuse(unexpectedMessage, errBeforeKey)
	}
	r.nextIn()
	return nil
}

// appendUpdate appends a KeyUpdate, and changes to the next key.
func (r *Records) appendUpdate(dst []byte) []byte {
	const notRequested = 0
	dst = r.seal(dst, typeHandshake, []byte{messageKeyUpdate, 0, 0, 1, notRequested})
	r.nextOut()
	return dst
}

// nextIn and nextOut change to the next keys, after a KeyUpdate.
func (r *Records) nextIn() {
	r.inKeys().next(r.is())
	r.in.rekey()
}

func (r *Records) nextOut() {
	r.outKeys().next(r.is())
	r.out.rekey()
}

// messageName returns the name of the type that crypto/tls has for a message, which is in the texts
// of its errors, or "".
func (r *Records) messageName(kind byte) string {
	name := map[byte]string{
		0: "helloRequestMsg", 1: "clientHelloMsg", 2: "serverHelloMsg", 4: "newSessionTicketMsg",
		5: "endOfEarlyDataMsg", 8: "encryptedExtensionsMsg", 11: "certificateMsg",
		12: "serverKeyExchangeMsg", 13: "certificateRequestMsg", 14: "serverHelloDoneMsg",
		15: "certificateVerifyMsg", 16: "clientKeyExchangeMsg", 20: "finishedMsg",
		22: "certificateStatusMsg", 24: "keyUpdateMsg",
	}[kind]
	if r.is13() && (kind == messageSessionTicket || kind == messageCertificate || kind == 13) {
		name += "TLS13"
	}
	return name
}
