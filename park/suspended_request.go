package park

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
)

// A waiting request is kept in one string, Suspended.head: numbers, and texts with their lengths.
// Its first part is what net/http needs to write the same answer, from the request that it has
// parsed:
//
//	the method, the minor version, the Connection fields
//
// The second part is the http.Request as the handler had it:
//
//	Method, RequestURI, URL unless it is that of RequestURI, Host, RemoteAddr unless it is that of
//	the connection, ContentLength, TransferEncoding, Header, Trailer, Pattern, path values, body
//
// The rest is what net/http has read of the client's next request.
//
// The second part never goes through a parser again, so the handler and middleware may have put any
// bytes there. A request of HTTP/2 has that part alone.

// A served is the request that a session serves, as net/http has given it to the outermost
// handler.
type served struct {
	w            http.ResponseWriter
	method       string
	major, minor int
	header       http.Header
	body         io.ReadCloser
}

func appendNumber(b []byte, n uint64) []byte { return binary.AppendUvarint(b, n) }

func appendText(b []byte, s string) []byte {
	return append(appendNumber(b, uint64(len(s))), s...)
}

func appendTexts(b []byte, list []string) []byte {
	b = appendNumber(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

func appendHeader(b []byte, h http.Header) []byte {
	b = appendNumber(b, uint64(len(h)))
	for name, values := range h {
		b = appendNumber(appendWord(b, name), uint64(len(values)))
		for _, v := range values {
			b = appendWord(b, v)
		}
	}
	return b
}

// appendWord appends a name or a value of a header field: twice its length and the text, or if it
// is one of commonWords, twice its place there and 1. So a browser's fields take half of their
// bytes.
func appendWord(b []byte, s string) []byte {
	if i, ok := placeOf[s]; ok {
		return appendNumber(b, 2*uint64(i)+1)
	}
	return append(appendNumber(b, 2*uint64(len(s))), s...)
}

// commonWords are names and values of header fields that most browsers send.
var commonWords = [...]string{
	"Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Cache-Control", "Connection",
	"Content-Length", "Content-Type", "Cookie", "If-Modified-Since", "If-None-Match", "Last-Event-Id",
	"Origin", "Pragma", "Priority", "Referer", "Sec-Ch-Ua", "Sec-Ch-Ua-Mobile", "Sec-Ch-Ua-Platform",
	"Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User", "Set-Cookie", "Te",
	"Upgrade-Insecure-Requests", "User-Agent", "Vary", "X-Forwarded-For", "X-Forwarded-Host",
	"X-Forwarded-Proto", "X-Real-Ip", "X-Request-Id", "X-Requested-With",
	"*/*", "0", "1", "?0", "?1", `"Android"`, `"Linux"`, `"Windows"`, `"iOS"`, `"macOS"`,
	"XMLHttpRequest", "application/json", "application/x-www-form-urlencoded", "cors", "document",
	"empty", "gzip", "gzip, deflate", "gzip, deflate, br", "gzip, deflate, br, zstd", "http", "https",
	"keep-alive", "max-age=0", "navigate", "no-cache", "no-store", "none", "same-origin", "same-site",
	"text/event-stream", "trailers", "u=0, i", "u=1", "u=1, i",
	"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
	"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8," +
		"application/signed-exchange;v=b3;q=0.7",
}

var placeOf = func() map[string]int {
	m := make(map[string]int, len(commonWords))
	for i, w := range commonWords {
		m[w] = i
	}
	return m
}()

// appendServed appends the first part.
func appendServed(b []byte, x *served) []byte {
	b = appendText(b, x.method)
	b = appendNumber(b, uint64(x.minor))
	return appendTexts(b, x.header["Connection"])
}

// appendRequest appends the second part.
func appendRequest(b []byte, r *http.Request, body []byte, remote net.Addr) []byte {
	b = appendText(b, r.Method)
	b = appendText(b, r.RequestURI)
	b = appendURL(b, r)
	b = appendText(b, r.Host)
	address := r.RemoteAddr
	if remote != nil && address == remote.String() {
		address = ""
	}
	b = appendText(b, address)
	b = appendNumber(b, uint64(r.ContentLength+1))
	b = appendTexts(b, r.TransferEncoding)
	b = appendHeader(b, r.Header)
	b = appendHeader(b, r.Trailer)
	b = appendText(b, r.Pattern)
	b = appendTexts(b, pathValues(r))
	return append(appendNumber(b, uint64(len(body))), body...)
}

// appendURL appends the URL: 0, or 1 and the fields if middleware has changed it, or if it is that
// of a CONNECT request.
func appendURL(b []byte, r *http.Request) []byte {
	u := cmp.Or(r.URL, new(url.URL))
	if parsed, err := url.ParseRequestURI(r.RequestURI); err == nil && *parsed == *u {
		return appendNumber(b, 0)
	}
	flags := uint64(1)
	for i, set := range []bool{u.ForceQuery, u.OmitHost, u.User != nil} {
		if set {
			flags |= 2 << i
		}
	}
	b = appendNumber(b, flags)
	for _, s := range textsOf(u) {
		b = appendText(b, *s)
	}
	if u.User == nil {
		return b
	}
	b = appendText(b, u.User.Username())
	if password, ok := u.User.Password(); ok {
		return appendTexts(b, []string{password})
	}
	return appendTexts(b, nil)
}

func textsOf(u *url.URL) [8]*string {
	return [...]*string{&u.Scheme, &u.Opaque, &u.Host, &u.Path, &u.RawPath, &u.RawQuery,
		&u.Fragment, &u.RawFragment}
}

// pathValues returns the names and values of the wildcards that the pattern of a request has, and
// of those that a router has set by SetPathValue. These names are not exported.
func pathValues(r *http.Request) (pairs []string) {
	add := func(name string) {
		if v := r.PathValue(name); v != "" {
			pairs = append(pairs, name, v)
		}
	}
	for rest := r.Pattern; ; {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			break
		}
		var name string
		name, rest, _ = strings.Cut(after, "}")
		add(strings.TrimSuffix(name, "..."))
	}
	if others := reflect.ValueOf(r).Elem().FieldByName("otherValues"); others.Kind() == reflect.Map {
		for entry := others.MapRange(); entry.Next(); {
			add(entry.Key().String())
		}
	}
	return pairs
}

// A textReader reads what the functions above have appended. What it returns is a part of the text.
type textReader struct{ rest string }

func (t *textReader) number() uint64 {
	n, size := binary.Uvarint([]byte(t.rest[:min(len(t.rest), binary.MaxVarintLen64)]))
	t.rest = t.rest[size:]
	return n
}

func (t *textReader) text() string {
	n := t.number()
	s := t.rest[:n]
	t.rest = t.rest[n:]
	return s
}

func (t *textReader) texts() []string {
	n := t.number()
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = t.text()
	}
	return list
}

// header adds header fields to h, which is made if it is nil and there are any.
func (t *textReader) header(h http.Header) http.Header {
	if t.rest == "" {
		return h
	}
	n := t.number()
	if h == nil && n > 0 {
		h = make(http.Header, n)
	}
	single := make([]string, n) // for the fields that have one value
	for ; n > 0; n-- {
		name, count := t.word(), t.number()
		var values []string
		switch count {
		case 0:
		case 1:
			values, single = single[:1:1], single[1:]
		default:
			values = make([]string, count)
		}
		for i := range values {
			values[i] = t.word()
		}
		h[name] = values
	}
	return h
}

// word reads what appendWord has appended.
func (t *textReader) word() string {
	n := t.number()
	if n&1 == 1 {
		return commonWords[n/2]
	}
	s := t.rest[:n/2]
	t.rest = t.rest[n/2:]
	return s
}

func (t *textReader) url(target string) *url.URL {
	flags := t.number()
	if flags == 0 {
		u, _ := url.ParseRequestURI(target) // as before
		return u
	}
	u := &url.URL{ForceQuery: flags&2 != 0, OmitHost: flags&4 != 0}
	for _, s := range textsOf(u) {
		*s = t.text()
	}
	if flags&8 == 0 {
		return u
	}
	name := t.text()
	if password := t.texts(); password != nil {
		u.User = url.UserPassword(name, password[0])
	} else {
		u.User = url.User(name)
	}
	return u
}

// wireHead returns a head for net/http to parse, and what the client has sent after its request.
// Its target and its host are not used.
func (q *Suspended) wireHead() string {
	in := textReader{q.head}
	method, minor, connection := in.text(), in.number(), in.texts()
	var b strings.Builder
	b.WriteString(method)
	b.WriteString(" / HTTP/1.")
	b.WriteByte('0' + byte(minor))
	b.WriteString("\r\nHost: x\r\n")
	for _, v := range connection {
		if !strings.ContainsAny(v, "\r\n\x00") {
			b.WriteString("Connection: ")
			b.WriteString(v)
			b.WriteString("\r\n")
		}
	}
	b.WriteString("\r\n")
	b.WriteString(q.head[q.size:])
	return b.String()
}

// wireRequest returns the request that net/http would parse from the head.
func (q *Suspended) wireRequest() *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(q.wireHead())))
	if err != nil { // the method or a Connection field was valid before
		r = &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	}
	return r
}

// skipServed skips the first part of a head.
func (t *textReader) skipServed() {
	t.text()
	t.number()
	t.texts()
}

// request makes a request what the handler had, from the second part of a head.
func (t *textReader) request(r *http.Request) {
	r.Method, r.RequestURI = t.text(), t.text()
	r.URL = t.url(r.RequestURI)
	r.Host = t.text()
	if address := t.text(); address != "" {
		r.RemoteAddr = address
	}
	r.ContentLength = int64(t.number()) - 1
	r.TransferEncoding = t.texts()
	if r.Header = t.header(nil); r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Trailer = t.header(nil)
	r.Pattern = t.text()
	for pairs := t.texts(); len(pairs) > 0; pairs = pairs[2:] {
		r.SetPathValue(pairs[0], pairs[1])
	}
	r.Body = bodyOf(t.text())
}
