package tlsrecord

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"reflect"
	"testing"
)

// A State gives back each field of a ConnectionState, whatever a release of Go puts into it.
func TestState(t *testing.T) {
	values := map[reflect.Type]reflect.Value{
		reflect.TypeFor[[]*x509.Certificate]():   reflect.ValueOf([]*x509.Certificate{{}}),
		reflect.TypeFor[[][]*x509.Certificate](): reflect.ValueOf([][]*x509.Certificate{{{}}}),
		reflect.TypeFor[[][]byte]():              reflect.ValueOf([][]byte{{1}}),
		reflect.TypeFor[[]byte]():                reflect.ValueOf([]byte{1}),
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[tls.ConnectionState]()) {
		if !f.IsExported() {
			continue
		}
		var state tls.ConnectionState
		switch v := reflect.ValueOf(&state).Elem().FieldByIndex(f.Index); v.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Uint16:
			v.SetUint(7)
		case reflect.String:
			v.SetString("x")
		default:
			value, ok := values[f.Type]
			if !ok {
				t.Errorf("%s has the type %v, which this test does not know", f.Name, f.Type)
				continue
			}
			v.Set(value)
		}
		s := newState(state)
		if got := s.Unpack(); !reflect.DeepEqual(got, state) {
			t.Errorf("%s: %+v, want %+v", f.Name, got, state)
		}
	}
	var none State
	if got := none.Unpack(); !reflect.DeepEqual(got, tls.ConnectionState{}) {
		t.Errorf("the zero State: %+v", got)
	}
}

// A usual connection keeps no ConnectionState of its own, and exports what its peer does.
func TestStateIsSmall(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := base.Clone()
		config.MaxVersion = version
		c, peer := pair(t, config, clientConfig)
		defer c.Close()
		defer peer.Close()
		// In TLS 1.2 each connection has a TLSUnique of its own.
		if small := c.state.whole == nil; small != (version == tls.VersionTLS13) {
			t.Errorf("%s: small: %v", tls.VersionName(version), small)
		}
		states := []tls.ConnectionState{c.ConnectionState(), peer.ConnectionState()}
		var keys [2][]byte
		for i := range states {
			var err error
			if keys[i], err = states[i].ExportKeyingMaterial("EXPERIMENTAL", []byte("x"), 32); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(keys[0], keys[1]) {
			t.Errorf("%s: %x, the peer has %x", tls.VersionName(version), keys[0], keys[1])
		}
	}
}

// Encrypted Client Hello works with the copy of the configuration that a handshake gets, also with
// one that GetConfigForClient returns.
func TestECH(t *testing.T) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	config := echConfig(key.PublicKey().Bytes())
	client := clientConfig.Clone()
	client.MinVersion = tls.VersionTLS13
	client.EncryptedClientHelloConfigList = binary.BigEndian.AppendUint16(nil, uint16(len(config)))
	client.EncryptedClientHelloConfigList = append(client.EncryptedClientHelloConfigList, config...)
	server := base.Clone()
	server.EncryptedClientHelloKeys = []tls.EncryptedClientHelloKey{
		{Config: config, PrivateKey: key.Bytes(), SendAsRetry: true}}
	chosen := base.Clone()
	chosen.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return server, nil }
	chosen.EncryptedClientHelloKeys = server.EncryptedClientHelloKeys
	for _, s := range []*tls.Config{server, chosen} {
		c, peer := pair(t, s, client)
		defer c.Close()
		defer peer.Close()
		got := c.ConnectionState()
		if !got.ECHAccepted || !peer.ConnectionState().ECHAccepted || got.ServerName != client.ServerName {
			t.Errorf("%+v", got)
		}
		exchange(t, c, peer)
	}
}

// echConfig returns an ECHConfig (RFC 9849, section 4) with a key for X25519, HKDF-SHA256 and
// AES-128-GCM.
func echConfig(key []byte) []byte {
	const version, id, x25519, sha256, aes128, public = 0xfe0d, 7, 0x20, 1, 1, "public.test"
	body := []byte{id, 0, x25519, 0, byte(len(key))}
	body = append(body, key...)
	body = append(body, 0, 4, 0, sha256, 0, aes128, 0 /* longest name */, byte(len(public)))
	body = append(append(body, public...), 0, 0)
	b := binary.BigEndian.AppendUint16(nil, version)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(body))), body...)
}
