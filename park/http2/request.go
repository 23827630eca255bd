package http2

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// newRequest makes the request of a new stream. It fails with a stream error if the request is malformed (RFC 9113, 8.1.1).
// The Framer has checked that names and values have valid characters, that names are in lower case, and that pseudo header
// fields are known, are not repeated and come first. The caller holds c.mu.
func (st *stream) newRequest(ctx context.Context, f *http2.MetaHeadersFrame) error {
	malformed := http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	method, scheme := f.PseudoValue("method"), f.PseudoValue("scheme")
	authority, path := f.PseudoValue("authority"), f.PseudoValue("path")
	// An extended CONNECT request (RFC 8441) has the protocol that is to follow.
	protocol := f.PseudoValue("protocol")
	extended := wire.HasField(f.PseudoFields(), ":protocol")
	connect := method == http.MethodConnect && !extended
	switch {
	case !httpguts.ValidHeaderFieldName(method):
		return malformed
	case extended && (!st.c.server.ExtendedConnect || method != http.MethodConnect || protocol == ""):
		return malformed
	case connect && (authority == "" || scheme != "" || path != ""):
		return malformed
	case !connect && (path == "" || path[0] != '/' && path != "*" || scheme != "http" && scheme != "https"):
		return malformed
	}
	header := make(http.Header)
	if extended {
		header.Set(":protocol", protocol) // as net/http does
	}
	for _, field := range f.RegularFields() {
		switch field.Name {
		case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
			return malformed
		case "te":
			if !strings.EqualFold(field.Value, "trailers") {
				return malformed
			}
		}
		if !trimmed(field.Value) {
			return malformed
		}
		header.Add(field.Name, field.Value)
	}
	if cookies := header["Cookie"]; len(cookies) > 1 {
		header["Cookie"] = []string{strings.Join(cookies, "; ")}
	}
	hosts := header["Host"]
	if authority == "" {
		authority = header.Get("Host")
	}
	if len(hosts) > 1 || len(hosts) == 1 && !strings.EqualFold(hosts[0], authority) ||
		!httpguts.ValidHostHeader(authority) { // also not with a user (RFC 9113, 8.3.1)
		return malformed
	}
	header.Del("Host") // as in HTTP/1.1
	target := &url.URL{Host: authority}
	uri := authority
	if !connect {
		var err error
		if target, err = url.ParseRequestURI(path); err != nil {
			return malformed
		}
		uri = path
	}
	if lengths := header["Content-Length"]; len(lengths) > 0 && !f.Truncated {
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		differs := func(other string) bool { return other != lengths[0] }
		if err != nil || slices.ContainsFunc(lengths, differs) || st.gotEnd && n != 0 {
			return malformed
		}
		st.declared = int64(n)
	}
	st.r = (&http.Request{
		Method: method, URL: target, RequestURI: uri, Host: authority,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: header, Trailer: declaredTrailers(header),
		RemoteAddr: st.c.conn.RemoteAddr().String(),
		Body:       &requestBody{st: st},
	}).WithContext(ctx)
	if scheme == "https" {
		st.r.TLS = st.c.connectionState()
	}
	if httpguts.HeaderValuesContainsToken(header["Expect"], "100-continue") {
		header.Del("Expect")
		st.expects = true
	}
	if !st.gotEnd {
		st.r.ContentLength = st.declared
	}
	return nil
}

// trimmed reports whether a value has no space or tab around it (RFC 9113, 8.2.1).
func trimmed(value string) bool { return value == textproto.TrimString(value) }

// declaredTrailers removes the Trailer header, and returns the map for the trailers that it declares, or nil.
func declaredTrailers(header http.Header) (trailer http.Header) {
	for _, value := range header["Trailer"] {
		for name := range strings.SplitSeq(value, ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			if name == "" || name == "Transfer-Encoding" || name == "Trailer" || name == "Content-Length" {
				continue
			}
			if trailer == nil {
				trailer = make(http.Header)
			}
			trailer[name] = nil
		}
	}
	header.Del("Trailer")
	return trailer
}

// validTrailer reports whether a header field may be a trailer.
func validTrailer(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return httpguts.ValidTrailerHeader(name) && name != "Upgrade"
}

// connectionState returns the state of TLS, or nil. The caller holds c.mu.
func (c *conn) connectionState() *tls.ConnectionState {
	if c.tlsState == nil {
		if p, ok := c.conn.(*park.Conn); ok {
			if t, ok := unwrap.AsTLS(p.NetConn()); ok {
				state := t.ConnectionState()
				c.tlsState = &state
			}
		}
	}
	return c.tlsState
}
