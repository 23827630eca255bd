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
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify"
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

// A keyServer publishes a set of keys.
type keyServer struct {
	*httptest.Server
	body  atomic.Pointer[[]byte]
	asked atomic.Int64
}

func newKeyServer(t *testing.T) *keyServer {
	t.Helper()
	s := new(keyServer)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
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
