package main

import (
	"bytes"
	"crypto/ed25519"
	crand "crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A tokenRequest has the flags of the command token.
type tokenRequest struct {
	secret, key, set, user, issuer, audience string
	create, control                          bool
	expires                                  time.Duration
	read, write, presence                    []string
	publish, subscribe                       []string // of Mercure
}

// token prints a token for trying things, and returns the exit status.
func token(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("socknotify-push token", flag.ContinueOnError)
	f.SetOutput(stderr)
	q := new(tokenRequest)
	f.StringVar(&q.secret, "jwt-secret", "", "file with the secret of HS256 tokens")
	f.StringVar(&q.key, "key", "", "file with a private key of EdDSA in PEM, instead of --jwt-secret")
	f.BoolVar(&q.create, "new", false, "make the file of --jwt-secret or --key first; it must not exist")
	f.StringVar(&q.set, "jwks-file", "", "write the public key of --key to this file, as a set of keys for --jwks of the gateway")
	f.StringVar(&q.user, "sub", "", "the user")
	listVar(f, &q.read, "read", "topics that the user may subscribe to, which may have wildcards, separated by commas")
	listVar(f, &q.write, "write", "topics that the user may publish to")
	listVar(f, &q.presence, "presence", "topics of which the user may know who is there")
	f.BoolVar(&q.control, "control", false, "the user may disconnect others")
	listVar(f, &q.publish, "mercure-publish", "topic selectors of Mercure that the user may publish to")
	listVar(f, &q.subscribe, "mercure-subscribe", "topic selectors of private updates of Mercure that the user may get")
	f.DurationVar(&q.expires, "expires", time.Hour, "time after which the token expires")
	f.StringVar(&q.issuer, "issuer", "", "the claim iss; none without it")
	f.StringVar(&q.audience, "audience", "", "the claim aud; none without it")
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err == nil {
		err = q.check()
	}
	if err != nil {
		fmt.Fprintf(stderr, "socknotify-push token: %v\n", err)
		return 2
	}
	text, err := q.sign()
	if err != nil {
		fmt.Fprintf(stderr, "socknotify-push token: %v\n", err)
		return 1
	}
	fmt.Fprintln(stdout, text)
	return 0
}

func (q *tokenRequest) check() error {
	switch {
	case (q.secret == "") == (q.key == ""):
		return errors.New("want one of --jwt-secret and --key")
	case q.set != "" && q.key == "":
		return errors.New("--jwks-file needs --key")
	case q.expires <= 0:
		return fmt.Errorf("--expires %v: want a time to come", q.expires)
	case len(q.user) > access.MaxSubject:
		return fmt.Errorf("--sub: want at most %d bytes", access.MaxSubject)
	}
	for _, t := range slices.Concat(q.read, q.write, q.presence) {
		if err := event.CheckTopic(t, true); err != nil {
			return err
		}
	}
	return nil
}

// claims returns what the token says. Empty lists allow nothing.
func (q *tokenRequest) claims(now time.Time) jwt.MapClaims {
	list := func(all []string) []string { return append([]string{}, all...) }
	c := jwt.MapClaims{"exp": now.Add(q.expires).Unix(), "push": map[string]any{
		"read": list(q.read), "write": list(q.write), "presence": list(q.presence), "control": q.control}}
	for name, value := range map[string]string{"sub": q.user, "iss": q.issuer, "aud": q.audience} {
		if value != "" {
			c[name] = value
		}
	}
	if q.publish != nil || q.subscribe != nil {
		c["mercure"] = map[string]any{"publish": list(q.publish), "subscribe": list(q.subscribe)}
	}
	return c
}

// sign returns a token.
func (q *tokenRequest) sign() (string, error) {
	claims := q.claims(time.Now())
	if q.secret != "" {
		if q.create {
			if err := createFile(q.secret, []byte(crand.Text()+crand.Text()+"\n"), 0o600); err != nil {
				return "", err
			}
		}
		secret, err := readSecret("--jwt-secret", q.secret, 32)
		if err != nil {
			return "", err
		}
		return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	}
	key, err := q.privateKey()
	if err != nil {
		return "", err
	}
	public := publicJWK(key)
	if q.set != "" {
		b, err := json.MarshalIndent(map[string]any{"keys": []any{public}}, "", "  ")
		if err == nil {
			err = os.WriteFile(q.set, append(b, '\n'), 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims)
	t.Header["kid"] = public["kid"]
	return t.SignedString(key)
}

// privateKey reads the key, or makes it.
func (q *tokenRequest) privateKey() (ed25519.PrivateKey, error) {
	if q.create {
		_, key, err := ed25519.GenerateKey(crand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, err
		}
		return key, createFile(q.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
	}
	b, err := os.ReadFile(q.key)
	if err != nil {
		return nil, err
	}
	key, err := jwt.ParseEdPrivateKeyFromPEM(bytes.TrimSpace(b))
	if err != nil {
		return nil, fmt.Errorf("--key %s: %w", q.key, err)
	}
	return key.(ed25519.PrivateKey), nil
}

// publicJWK returns the public key as in a set of keys (RFC 7517, RFC 8037). Its name is its thumbprint
// (RFC 7638).
func publicJWK(key ed25519.PrivateKey) map[string]string {
	x := base64.RawURLEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + x + `"}`))
	return map[string]string{"kty": "OKP", "crv": "Ed25519", "x": x, "alg": "EdDSA", "use": "sig",
		"kid": base64.RawURLEncoding.EncodeToString(sum[:])}
}

// createFile writes a file that does not exist.
func createFile(name string, b []byte, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return fmt.Errorf("--new: %w", err)
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}
