// Package keys verifies tokens.
//
//	token.go  a token, and its claims
//	jwks.go   a set of keys that a server publishes, read when it is due and for keys that are unknown
//	jwk.go    one key of a set
package keys
