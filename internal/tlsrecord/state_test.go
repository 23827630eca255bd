package tlsrecord

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
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
