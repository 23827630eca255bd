//lint:file-ignore SA1019 NegotiatedProtocolIsMutual is deprecated, and kept as all fields are.

package tlsrecord

import (
	"crypto/tls"
	"reflect"
	"unique"
	"unsafe"
)

// A State is what a handshake has agreed upon, a [tls.ConnectionState], in 24 bytes instead of 192.
// Most connections of a server agree upon the same, which is kept once for all of them; only the
// exporter belongs to one. A state that has more, such as the certificates of a client, is kept as
// it is. The zero State is that of no handshake.
type State struct {
	common   unique.Handle[common]
	exporter exporter
	whole    *tls.ConnectionState // nil, or the state
}

// common is what connections may have in common.
type common struct {
	version, suite        uint16
	curve                 tls.CurveID
	complete, mutual      bool
	resumed, retried, ech bool
	protocol, name        string
	local                 *[]byte // the server's certificates, and how many
	locals                int
}

// An exporter makes what ConnectionState.ExportKeyingMaterial returns. crypto/tls has it in a field
// that is not exported.
type exporter = func(label string, context []byte, length int) ([]byte, error)

// exporterField is that field, or ok is false, because another release of Go has none. Then each
// connection keeps its whole state.
var exporterField, exporterFound = func() (reflect.StructField, bool) {
	f, ok := reflect.TypeFor[tls.ConnectionState]().FieldByName("ekm")
	return f, ok && f.Type == reflect.TypeFor[exporter]()
}()

func exporterOf(state *tls.ConnectionState) *exporter {
	return (*exporter)(unsafe.Add(unsafe.Pointer(state), exporterField.Offset))
}

// newState returns the State of state.
func newState(state tls.ConnectionState) State {
	if !exporterFound {
		return State{whole: &state}
	}
	rest := state // what is not in common
	rest.Version, rest.CipherSuite, rest.CurveID = 0, 0, 0
	rest.HandshakeComplete, rest.NegotiatedProtocolIsMutual = false, false
	rest.DidResume, rest.HelloRetryRequest, rest.ECHAccepted = false, false, false
	rest.NegotiatedProtocol, rest.ServerName = "", ""
	*exporterOf(&rest), *localCertificate(&rest) = nil, nil
	if !reflect.ValueOf(&rest).Elem().IsZero() {
		return State{whole: &state}
	}
	local := *localCertificate(&state)
	return State{exporter: *exporterOf(&state), common: unique.Make(common{
		state.Version, state.CipherSuite, state.CurveID,
		state.HandshakeComplete, state.NegotiatedProtocolIsMutual,
		state.DidResume, state.HelloRetryRequest, state.ECHAccepted,
		state.NegotiatedProtocol, state.ServerName,
		unsafe.SliceData(local), len(local)})}
}

// WithoutPeer returns the State without the peer's certificates, and what comes with them.
func (s *State) WithoutPeer() State {
	if s.whole == nil {
		return *s
	}
	state := *s.whole
	state.PeerCertificates, state.VerifiedChains, state.OCSPResponse = nil, nil, nil
	state.SignedCertificateTimestamps = nil
	return newState(state)
}

// Unpack returns what the State was made of.
func (s *State) Unpack() (state tls.ConnectionState) {
	switch {
	case s.whole != nil:
		return *s.whole
	case s.common == unique.Handle[common]{}:
		return state
	}
	c := s.common.Value()
	state.Version, state.CipherSuite, state.CurveID = c.version, c.suite, c.curve
	state.HandshakeComplete, state.NegotiatedProtocolIsMutual = c.complete, c.mutual
	state.DidResume, state.HelloRetryRequest, state.ECHAccepted = c.resumed, c.retried, c.ech
	state.NegotiatedProtocol, state.ServerName = c.protocol, c.name
	*exporterOf(&state), *localCertificate(&state) = s.exporter, unsafe.Slice(c.local, c.locals)
	return state
}
