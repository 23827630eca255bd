package tlsrecord

import (
	"net"
	"strconv"
)

// An Alert is a TLS alert (RFC 8446, section 6), as the Err of a *net.OpError. The type that
// crypto/tls has there is not exported; the texts are equal.
type Alert uint8

const (
	closeNotify       Alert = 0
	unexpectedMessage Alert = 10
	badRecordMAC      Alert = 20
	recordOverflow    Alert = 22
	decodeError       Alert = 50
	protocolVersion   Alert = 70
	internalError     Alert = 80
	userCanceled      Alert = 90
	noRenegotiation   Alert = 100
)

var alertTexts = map[Alert]string{
	0: "close notify", 10: "unexpected message", 20: "bad record MAC", 21: "decryption failed",
	22: "record overflow", 30: "decompression failure", 40: "handshake failure",
	42: "bad certificate", 43: "unsupported certificate", 44: "revoked certificate",
	45: "expired certificate", 46: "unknown certificate", 47: "illegal parameter",
	48: "unknown certificate authority", 49: "access denied", 50: "error decoding message",
	51: "error decrypting message", 60: "export restriction",
	70: "protocol version not supported", 71: "insufficient security level",
	80: "internal error", 86: "inappropriate fallback", 90: "user canceled",
	100: "no renegotiation", 109: "missing extension", 110: "unsupported extension",
	111: "certificate unobtainable", 112: "unrecognized name",
	113: "bad certificate status response", 114: "bad certificate hash value",
	115: "unknown PSK identity", 116: "certificate required", 120: "no application protocol",
	121: "encrypted client hello required",
}

func (a Alert) Error() string {
	if text, ok := alertTexts[a]; ok {
		return "tls: " + text
	}
	return "tls: alert(" + strconv.Itoa(int(a)) + ")"
}

// level returns the level that the alert is sent with.
func (a Alert) level() byte {
	const warning, fatal = 1, 2
	if a == closeNotify || a == noRenegotiation {
		return warning
	}
	return fatal
}

// local is the error of a connection that ends with an alert to the peer, remote of one from it.
func local(a Alert) error  { return &net.OpError{Op: "local error", Err: a} }
func remote(a Alert) error { return &net.OpError{Op: "remote error", Err: a} }
