package tunnel

import (
	"net/http"
	"slices"
	"strings"
)

// httpProtocols are the names of protocols by which a connection goes on with requests of HTTP, as
// the header Upgrade has them: RFC 7540, 3.2, RFC 9110, 7.8, and RFC 2817.
var httpProtocols = []string{"h2c", "h2", "http", "tls"}

// offersHTTP reports whether a value of the header Upgrade, or a part of it, has the name of one of
// these protocols, with or without a version. It takes everything that cannot be in a name for the
// end of one, because servers differ in what they take for a list.
func offersHTTP(text string) bool {
	for name := range strings.FieldsFuncSeq(text, func(r rune) bool { return !isTokenChar(r) }) {
		if slices.ContainsFunc(httpProtocols, func(p string) bool { return strings.EqualFold(p, name) }) {
			return true
		}
	}
	return false
}

func isTokenChar(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' ||
		strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// withoutHTTPUpgrade returns the request without its offers to go on with HTTP, which are parts of
// the header Upgrade, and without the header HTTP2-Settings. If there are none, it is r itself.
func withoutHTTPUpgrade(r *http.Request) *http.Request {
	if r.Header["Http2-Settings"] == nil && !slices.ContainsFunc(r.Header["Upgrade"], offersHTTP) {
		return r
	}
	r = r.WithContext(r.Context()) // a copy
	r.Header = r.Header.Clone()
	r.Header.Del("HTTP2-Settings")
	filterList(r.Header, "Connection", func(option string) bool { return strings.EqualFold(option, "HTTP2-Settings") })
	filterList(r.Header, "Upgrade", offersHTTP)
	return r
}

// filterList drops elements from the lists of a header, and lists of which nothing is left.
func filterList(h http.Header, name string, drop func(element string) bool) {
	var lists []string
	for _, list := range h[name] {
		var left []string
		for element := range strings.SplitSeq(list, ",") {
			if element = strings.Trim(element, " \t"); element != "" && !drop(element) {
				left = append(left, element)
			}
		}
		if left != nil {
			lists = append(lists, strings.Join(left, ", "))
		}
	}
	if h[name] = lists; lists == nil {
		delete(h, name)
	}
}

// dropHopByHop removes the headers of a response with status 101 that are for the proxy alone (RFC 9110, 7.6.1), which
// httputil passes on.
func dropHopByHop(h http.Header) {
	for _, list := range h["Connection"] {
		for option := range strings.SplitSeq(list, ",") {
			if option = strings.TrimSpace(option); !strings.EqualFold(option, "Upgrade") {
				h.Del(option)
			}
		}
	}
	for _, name := range []string{"Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Transfer-Encoding"} {
		h.Del(name)
	}
	if h["Connection"] != nil {
		h.Set("Connection", "Upgrade")
	}
}
