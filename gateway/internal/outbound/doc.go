// Package outbound makes requests to servers that the configuration names: to public addresses alone,
// unless others are allowed, without redirects and without a proxy.
package outbound
