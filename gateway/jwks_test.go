package gateway

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// jwk returns the public part of a key as a server publishes it.
func jwk(id string, key any) map[string]string {
	b64 := base64.RawURLEncoding.EncodeToString
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return map[string]string{"kty": "RSA", "kid": id, "n": b64(k.N.Bytes()), "e": "AQAB"}
	case *ecdsa.PrivateKey:
		public, err := k.PublicKey.Bytes()
		if err != nil {
			panic(err)
		}
		return map[string]string{"kty": "EC", "crv": "P-256", "kid": id, "x": b64(public[1:33]), "y": b64(public[33:])}
	case ed25519.PrivateKey:
		return map[string]string{"kty": "OKP", "crv": "Ed25519", "kid": id, "x": b64(k.Public().(ed25519.PublicKey))}
	default:
		return map[string]string{"kty": "oct", "kid": id, "k": b64(key.([]byte))}
	}
}

// A keyServer publishes a set of keys. While gate is locked it does not answer.
type keyServer struct {
	*httptest.Server
	body  atomic.Pointer[[]byte]
	asked atomic.Int64
	gate  sync.RWMutex
}

func newKeyServer(t *testing.T) *keyServer {
	t.Helper()
	s := new(keyServer)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		s.gate.RLock()
		defer s.gate.RUnlock()
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/", http.StatusFound)
			return
		}
		w.Write(*s.body.Load())
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(s.Close)
	return s
}

func (s *keyServer) publish(keys ...map[string]string) {
	b := encode(map[string]any{"keys": keys})
	s.body.Store(&b)
}

// authorize returns the answer to a token with these headers.
func authorize(t *testing.T, hook func(*http.Request) (Grant, error), method jwt.SigningMethod, key any, header ...string) error {
	t.Helper()
	token := jwt.NewWithClaims(method, jwt.MapClaims{"exp": time.Now().Add(time.Minute).Unix(),
		"push": map[string]any{"read": []string{"a"}}})
	for i := 0; i < len(header); i += 2 {
		token.Header[header[i]] = header[i+1]
	}
	signed, err := token.SignedString(key)
	must(t, err)
	r := httptest.NewRequest("GET", "/events?topic=a", nil)
	r.Header.Set("Authorization", "Bearer "+signed)
	_, err = hook(r)
	return err
}

// Tokens are valid by the keys that the server publishes, each by its own algorithm. A new key is
// found when it is used, and one that is gone is not valid any more.
func TestJWKS(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(crand.Reader, 2048)
	must(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	must(t, err)
	_, edKey, err := ed25519.GenerateKey(crand.Reader)
	must(t, err)
	s := newKeyServer(t)
	s.publish(jwk("r", rsaKey), jwk("e", ecKey), jwk("h", secret))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hook, err := JWKS{URL: s.URL, Client: s.Client(), Logger: quiet}.Authorize(ctx)
	must(t, err)
	must(t, authorize(t, hook, jwt.SigningMethodRS256, rsaKey, "kid", "r"))
	must(t, authorize(t, hook, jwt.SigningMethodES256, ecKey, "kid", "e"))
	other, err := rsa.GenerateKey(crand.Reader, 2048)
	must(t, err)
	for name, err := range map[string]error{
		"another key":          authorize(t, hook, jwt.SigningMethodRS256, other, "kid", "r"),
		"the key of another":   authorize(t, hook, jwt.SigningMethodES256, ecKey, "kid", "r"),
		"another algorithm":    authorize(t, hook, jwt.SigningMethodPS256, rsaKey, "kid", "r"),
		"HMAC with the secret": authorize(t, hook, jwt.SigningMethodHS256, secret, "kid", "h"),
		"HMAC with the public key": authorize(t, hook, jwt.SigningMethodHS256,
			x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey), "kid", "r"),
		"a key in the header": authorize(t, hook, jwt.SigningMethodRS256, other, "kid", "x", "jku", s.URL, "x5u", s.URL),
		"an extension":        authorize(t, hook, jwt.SigningMethodRS256, rsaKey, "kid", "r", "crit", "exp"),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	s.publish(jwk("n", edKey))
	hook, err = JWKS{URL: s.URL, Client: s.Client(), Logger: quiet}.Authorize(ctx) // whose limit is not used up
	must(t, err)
	s.publish(jwk("n", edKey), jwk("r", rsaKey))
	must(t, authorize(t, hook, jwt.SigningMethodRS256, rsaKey, "kid", "r"))
	before := s.asked.Load()
	for range 20 {
		if authorize(t, hook, jwt.SigningMethodRS256, other, "kid", "unknown") == nil {
			t.Error("an unknown key was accepted")
		}
	}
	if n := s.asked.Load() - before; n > 1 {
		t.Errorf("unknown keys have made %d requests", n)
	}
}

// A set is read from the given server alone: by https, without redirects, of a bounded size, and at
// a public address unless others are allowed.
func TestJWKSBounds(t *testing.T) {
	_, edKey, err := ed25519.GenerateKey(crand.Reader)
	must(t, err)
	for _, url := range []string{"http://example.org/keys", "example.org", "", "https://"} {
		if _, err := (JWKS{URL: url}).Authorize(t.Context()); !errors.Is(err, socknotify.ErrInvalid) {
			t.Errorf("%q: %v", url, err)
		}
	}
	s := newKeyServer(t)
	for name, c := range map[string]struct {
		path    string
		private bool
		padding int
		want    string // in the log; empty if it is accepted
	}{
		"as it should be": {"/", true, 0, ""},
		"private":         {"/", false, 0, errPrivate.Error()},
		"redirected":      {"/moved", true, 0, "302"},
		"too large":       {"/", true, maxJWKS, "too large"},
	} {
		s.publish(jwk("n", edKey))
		b := bytes.Replace(*s.body.Load(), []byte("{"), []byte("{"+strings.Repeat(" ", c.padding)), 1)
		s.body.Store(&b)
		var log lockedBuffer
		j := JWKS{URL: s.URL + c.path, Private: c.private, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		j.Client = j.client()
		j.Client.Transport.(bounded).RoundTripper.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool(s)}
		ctx, cancel := context.WithCancel(t.Context())
		hook, err := j.Authorize(ctx)
		must(t, err)
		err = authorize(t, hook, jwt.SigningMethodEdDSA, edKey, "kid", "n")
		cancel()
		log.mu.Lock()
		if accepted := err == nil; accepted != (c.want == "") || !strings.Contains(log.String(), c.want) {
			t.Errorf("%s: %v, the log is %s", name, err, log.String())
		}
		log.mu.Unlock()
	}
}

// A key server may take longer to answer than a request waits. The look at its set goes on without
// the request, and the key is valid when the answer has come.
func TestJWKSSlow(t *testing.T) {
	clock := testclock.Install(t)
	_, edKey, err := ed25519.GenerateKey(crand.Reader)
	must(t, err)
	s := newKeyServer(t)
	s.publish()
	k, err := JWKS{URL: s.URL, Client: s.Client(), Logger: quiet}.keys(t.Context())
	must(t, err)
	hook := tokens(k.find, nil, "EdDSA")
	s.publish(jwk("new", edKey))
	clock.Advance(time.Minute)
	s.gate.Lock()
	first := make(chan error, 1)
	go func() { first <- authorize(t, hook, jwt.SigningMethodEdDSA, edKey, "kid", "new") }()
	until(t, "the server is asked", func() bool { return s.asked.Load() == 2 })
	until(t, "the request does not wait longer", func() bool {
		clock.Advance(jwksPatience)
		select {
		case err := <-first:
			return err != nil
		default:
			return false
		}
	})
	s.gate.Unlock()
	until(t, "the look has ended", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return !k.looking
	})
	must(t, authorize(t, hook, jwt.SigningMethodEdDSA, edKey, "kid", "new"))
	if n := s.asked.Load(); n > 2 {
		t.Errorf("the server was asked %d times, though the answer to the first look has the key", n)
	}
}

// Tokens with invented keys in each second make no more looks than one in jwksUnknown. Nor do they
// delay a new key by more than that, or wait longer than a request does.
func TestJWKSInvented(t *testing.T) {
	clock := testclock.Install(t)
	_, edKey, err := ed25519.GenerateKey(crand.Reader)
	must(t, err)
	_, other, err := ed25519.GenerateKey(crand.Reader)
	must(t, err)
	s := newKeyServer(t)
	s.publish()
	k, err := JWKS{URL: s.URL, Client: s.Client(), Logger: quiet}.keys(t.Context())
	must(t, err)
	hook := tokens(k.find, nil, "EdDSA")
	var waiting atomic.Int64
	try := func(key ed25519.PrivateKey, kid string, answer chan<- error) {
		waiting.Add(1)
		go func() {
			defer waiting.Add(-1)
			answer <- authorize(t, hook, jwt.SigningMethodEdDSA, key, "kid", kid)
		}()
	}
	const seconds, each, published = 30, 40, 12
	invented, genuine := make(chan error, seconds*each), make(chan error, seconds)
	for second := range seconds {
		if second == published {
			s.publish(jwk("new", edKey))
		}
		for i := range each {
			try(other, fmt.Sprint("invented ", second, i), invented)
		}
		if second >= published {
			try(edKey, "new", genuine)
		}
		clock.Advance(time.Second)
		until(t, "looks that are due have ended", func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			return !k.looking && (k.due.IsZero() || k.due.After(clock.Now()))
		})
		if second >= published+int(jwksUnknown/time.Second) {
			must(t, authorize(t, hook, jwt.SigningMethodEdDSA, edKey, "kid", "new"))
		}
	}
	if n, most := s.asked.Load(), int64(2+seconds/(jwksUnknown/time.Second)); n > most || n < 3 {
		t.Errorf("the server was asked %d times in %d seconds, want at most %d", n, seconds, most)
	}
	until(t, "no request waits", func() bool {
		clock.Advance(jwksPatience)
		return waiting.Load() == 0
	})
	for range cap(invented) {
		if err := <-invented; err == nil {
			t.Fatal("an invented key was accepted")
		}
	}
}

// A key that cannot be used is left out, and one warning names it. The others are valid.
func TestJWKSOddKeys(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(crand.Reader, 2048)
	must(t, err)
	short, err := rsa.GenerateKey(crand.Reader, 1024)
	must(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	must(t, err)
	_, edKey, err := ed25519.GenerateKey(crand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(crand.Reader, template, template, rsaKey.Public(), rsaKey)
	must(t, err)
	b64 := base64.StdEncoding.EncodeToString
	with := func(key map[string]any, more ...any) map[string]any {
		for i := 0; i < len(more); i += 2 {
			if key[more[i].(string)] = more[i+1]; more[i+1] == nil {
				delete(key, more[i].(string))
			}
		}
		return key
	}
	public := func(id string, key any, more ...any) map[string]any {
		all := map[string]any{}
		for name, value := range jwk(id, key) {
			all[name] = value
		}
		return with(all, more...)
	}
	good := []any{
		public("g0", edKey), public("g1", rsaKey, "use", "sig", "alg", "RS256", "x5c", []string{b64(certificate)}),
		public("g2", ecKey, "key_ops", []string{"verify", "other"}, "other", map[string]int{"a": 1}),
	}
	zeros := base64.RawURLEncoding.EncodeToString(make([]byte, 32))
	odd := map[string]any{
		"use": public("use", rsaKey, "use", "tls"), "enc": public("enc", rsaKey, "use", "enc"),
		"key_ops": public("key_ops", rsaKey, "key_ops", []string{"unknown"}),
		"text":    public("text", rsaKey, "key_ops", "verify"),
		"x5c":     public("x5c", rsaKey, "x5c", []string{"broken"}),
		"der":     public("der", rsaKey, "x5c", []string{b64([]byte("broken"))}),
		"other":   public("other", edKey, "x5c", []string{b64(certificate)}),
		"no n":    public("no n", rsaKey, "n", nil), "no e": public("no e", rsaKey, "e", nil),
		"e of 1": public("e of 1", rsaKey, "e", "AQ"), "1,024 bits": public("1,024 bits", short),
		"base64":        public("base64", rsaKey, "n", "!"),
		"off its curve": public("off its curve", ecKey, "y", zeros),
		"short x":       public("short x", ecKey, "x", "AAAA"), "curve": public("curve", ecKey, "crv", "P-999"),
		"short": public("short", edKey, "x", "AAAA"), "kty": public("kty", edKey, "kty", "new"),
		"secret": public("secret", secret), "alg": public("alg", rsaKey, "alg", "RSA-OAEP"),
		"key 2": 5, "key 3": public("", rsaKey, "kid", 7),
	}
	s := newKeyServer(t)
	for name, key := range odd {
		all := append([]any{good[0], key, key}, good[1:]...)
		b := encode(map[string]any{"keys": all})
		s.body.Store(&b)
		var log lockedBuffer
		ctx, cancel := context.WithCancel(t.Context())
		k, err := JWKS{URL: s.URL, Client: s.Client(), Logger: slog.New(slog.NewTextHandler(&log, nil))}.keys(ctx)
		must(t, err)
		k.look() // says nothing new
		cancel()
		hook := tokens(k.find, nil, "RS256", "ES256", "EdDSA")
		must(t, authorize(t, hook, jwt.SigningMethodEdDSA, edKey, "kid", "g0"))
		must(t, authorize(t, hook, jwt.SigningMethodRS256, rsaKey, "kid", "g1"))
		must(t, authorize(t, hook, jwt.SigningMethodES256, ecKey, "kid", "g2"))
		if len(k.keys) != len(good) {
			t.Errorf("%s: there are %d keys", name, len(k.keys))
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), name) {
			t.Errorf("%s: %d warnings: %s", name, n, log.String())
		}
	}
	for _, text := range []string{"", "{}", "[]", `{"keys": 5}`, `{"keys": null}`, "<html>"} {
		if _, _, err := parseKeys([]byte(text)); err == nil {
			t.Errorf("%q is a set of keys", text)
		}
	}
	if keys, odd, err := parseKeys([]byte(`{"keys": []}`)); len(keys)+len(odd) != 0 || err != nil {
		t.Errorf("no keys: %v, %v, %v", keys, odd, err)
	}
}

// No request of the configuration connects to an address that is inside of a network, in any form.
func TestOutboundIsPublic(t *testing.T) {
	for _, ip := range strings.Fields(`127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 0.0.0.0
		100.64.0.1 100.127.255.255 198.18.0.1 198.19.255.255 192.0.0.1 192.0.2.1 198.51.100.1 203.0.113.1
		240.0.0.1 255.255.255.255 168.63.129.16 224.0.0.1 ::1 :: ::ffff:10.0.0.1 ::ffff:100.64.0.1 ::10.0.0.1
		64:ff9b::10.0.0.1 64:ff9b::168.63.129.16 64:ff9b:1::10.0.0.1 64:ff9b:1::1 2002:a00:1::1
		2002:6440:1::1 fec0::1 2001:db8::1 2001::1 fe80::1 fd00::1 ff02::1`) {
		if err := onlyPublic("tcp", net.JoinHostPort(ip, "443"), nil); err != errPrivate {
			t.Errorf("%s: %v", ip, err)
		}
	}
	for _, ip := range strings.Fields("8.8.8.8 100.128.0.1 2606:4700:4700::1111 64:ff9b::8.8.8.8") {
		if err := onlyPublic("tcp", net.JoinHostPort(ip, "443"), nil); err != nil {
			t.Errorf("%s: %v", ip, err)
		}
	}
}

func pool(s *keyServer) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(s.Certificate())
	return p
}

// A client may begin with the first event that the stream has.
func TestFromTheBeginning(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	for _, data := range []string{"1", "2"} {
		s.publish("a", data)
	}
	status, body := s.request("GET", "/poll?topic=a&after=first", "")
	var answer struct{ Events []envelope }
	must(t, json.NewDecoder(strings.NewReader(body)).Decode(&answer))
	if status != 200 || len(answer.Events) != 2 || answer.Events[0].Data != "1" || strings.Contains(body, "gap") {
		t.Errorf("%d %s", status, body)
	}
	r, err := openSSE(s.url, "topic=a&topic=b&after=first", "")
	must(t, err)
	defer r.close()
	s.publish("b", "3")
	for _, want := range []string{"1", "2", "3"} {
		m, err := r.next()
		if must(t, err); m.Data != want {
			t.Errorf("got %+v, want %s", m, want)
		}
	}
}
