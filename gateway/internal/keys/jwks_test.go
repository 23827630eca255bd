package keys

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/outbound"

	crand "crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	quiet  = slog.New(slog.DiscardHandler)
	secret = []byte("a secret of at least 32 bytes, for HS256")
)

// A lockedBuffer is a log of concurrent writers.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

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
	b := event.Encode(map[string]any{"keys": keys})
	s.body.Store(&b)
}

// authorize returns the answer to a token with these headers.
func authorize(t *testing.T, v *verifier, method jwt.SigningMethod, key any, header ...string) error {
	t.Helper()
	token := jwt.NewWithClaims(method, jwt.MapClaims{"exp": time.Now().Add(time.Minute).Unix(),
		"push": map[string]any{"read": []string{"a"}}})
	for i := 0; i < len(header); i += 2 {
		token.Header[header[i]] = header[i+1]
	}
	signed, err := token.SignedString(key)
	must(t, err)
	_, err = v.Verify(t.Context(), signed, false)
	return err
}

// verifierOf returns a verifier by the keys that a set has now, and its keys.
func verifierOf(t *testing.T, ctx context.Context, j JWKS) (*verifier, *keySet) {
	t.Helper()
	k, err := j.Keys(ctx)
	must(t, err)
	return NewVerifier(k.Find, nil, "RS256", "ES256", "EdDSA"), k
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
	hook, _ := verifierOf(t, ctx, JWKS{URL: s.URL, Client: s.Client(), Logger: quiet})
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
	hook, _ = verifierOf(t, ctx, JWKS{URL: s.URL, Client: s.Client(), Logger: quiet}) // whose limit is not used up
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
		if _, err := (JWKS{URL: url}).Keys(t.Context()); !errors.Is(err, socknotify.ErrInvalid) {
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
		"private":         {"/", false, 0, outbound.ErrPrivate.Error()},
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
		hook, _ := verifierOf(t, ctx, j)
		err := authorize(t, hook, jwt.SigningMethodEdDSA, edKey, "kid", "n")
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
	synctest.Test(t, func(t *testing.T) {
		_, edKey, err := ed25519.GenerateKey(crand.Reader)
		must(t, err)
		s := newMemoryServer()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		hook, _ := verifierOf(t, ctx, s.jwks())
		s.publish(jwk("new", edKey))
		time.Sleep(time.Minute)
		<-s.open // the server does not answer
		began := time.Now()
		if authorize(t, hook, jwt.SigningMethodEdDSA, edKey, "kid", "new") == nil {
			t.Error("a key was accepted that the server has not published")
		}
		if waited := time.Since(began); waited != jwksPatience {
			t.Errorf("the request has waited for %v", waited)
		}
		s.open <- struct{}{}
		synctest.Wait()
		must(t, authorize(t, hook, jwt.SigningMethodEdDSA, edKey, "kid", "new"))
		if n := s.asked.Load(); n != 2 {
			t.Errorf("the server was asked %d times, though the answer to the first look has the key", n)
		}
	})
}

// A memoryServer publishes a set of keys without a network. It answers while open has a value.
type memoryServer struct {
	keyServer
	open chan struct{}
}

func newMemoryServer() *memoryServer {
	s := &memoryServer{open: make(chan struct{}, 1)}
	s.open <- struct{}{}
	s.publish()
	return s
}

func (s *memoryServer) jwks() JWKS {
	return JWKS{URL: "https://keys.test/", Client: &http.Client{Transport: s}, Logger: quiet}
}

func (s *memoryServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked.Add(1)
	select {
	case <-s.open:
		s.open <- struct{}{}
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(*s.body.Load()))}, nil
}

// Tokens with invented keys in each second make no more looks than one in jwksUnknown. Nor do they
// delay a new key by more than that, or wait longer than a request does.
func TestJWKSInvented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, edKey, err := ed25519.GenerateKey(crand.Reader)
		must(t, err)
		_, other, err := ed25519.GenerateKey(crand.Reader)
		must(t, err)
		s := newMemoryServer()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		hook, _ := verifierOf(t, ctx, s.jwks())
		try := func(key ed25519.PrivateKey, kid string, answer chan<- error) {
			go func() {
				began := time.Now()
				err := authorize(t, hook, jwt.SigningMethodEdDSA, key, "kid", kid)
				if waited := time.Since(began); waited > jwksPatience {
					t.Errorf("%s has waited for %v", kid, waited)
				}
				answer <- err
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
			time.Sleep(time.Second)
			synctest.Wait()
			if second >= published+int(jwksUnknown/time.Second) {
				must(t, authorize(t, hook, jwt.SigningMethodEdDSA, edKey, "kid", "new"))
			}
		}
		if n, most := s.asked.Load(), int64(2+seconds/(jwksUnknown/time.Second)); n > most || n < 3 {
			t.Errorf("the server was asked %d times in %d seconds, want at most %d", n, seconds, most)
		}
		for range cap(invented) {
			if err := <-invented; err == nil {
				t.Fatal("an invented key was accepted")
			}
		}
	})
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
		b := event.Encode(map[string]any{"keys": all})
		s.body.Store(&b)
		var log lockedBuffer
		ctx, cancel := context.WithCancel(t.Context())
		hook, k := verifierOf(t, ctx, JWKS{URL: s.URL, Client: s.Client(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		k.look() // says nothing new
		cancel()
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

func pool(s *keyServer) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(s.Certificate())
	return p
}
