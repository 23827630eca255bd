package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// proxied starts the proxy. It returns its address, and a function that ends it and returns its
// output.
func proxied(t *testing.T, args ...string) (address string, stop func() string) {
	t.Helper()
	backendtest.Need(t)
	ctx, interrupt := context.WithCancel(t.Context())
	r, w := io.Pipe()
	var out bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, append([]string{"proxy", "--addr", "127.0.0.1:0"}, args...), &out, w)
		w.Close()
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	found := regexp.MustCompile(`proxy on (\S+): `).FindStringSubmatch(line)
	if found == nil {
		t.Fatalf("%q, %v", line, err)
	}
	go io.Copy(io.Discard, r)
	return found[1], func() string {
		interrupt()
		if status := <-done; status != 0 {
			t.Errorf("status %d", status)
		}
		return out.String()
	}
}

// forwarding answers with its name and what the proxy has told of the client.
func forwarding(t *testing.T, name string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name == "sick" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, name, "|", strings.Join(r.Header["X-Forwarded-For"], ","), "|", r.Header.Get("X-Forwarded-Proto"), "|", r.Host)
	}))
	t.Cleanup(s.Close)
	return s
}

func get(t *testing.T, c *http.Client, url string, header http.Header) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host, r.Header = "site", header
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The servers that are up take turns, and get what the client cannot forge.
func TestProxyHTTP(t *testing.T) {
	one, two, sick := forwarding(t, "one"), forwarding(t, "two"), forwarding(t, "sick")
	to := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	args := []string{"--to", to(one), "--to", to(two), "--to", to(sick), "--check-path", "/", "--check", "10ms"}
	forged := http.Header{"X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Proto": {"https"}}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "|127.0.0.1|http|site"},
		{[]string{"--trust", "192.0.2.0/24"}, "|127.0.0.1|http|site"},
		{[]string{"--trust", "127.0.0.0/8"}, "|192.0.2.1, 127.0.0.1|https|site"},
		{[]string{"--tls"}, "|127.0.0.1|https|site"},
	} {
		address, stop := proxied(t, append(args, c.args...)...)
		scheme := "http"
		if c.args != nil && c.args[0] == "--tls" {
			scheme = "https"
		}
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		client := &http.Client{Transport: transport}
		var first, second string
		await.Until(t, "the sick server is known", func() bool {
			first, second = get(t, client, scheme+"://"+address, forged), get(t, client, scheme+"://"+address, forged)
			third := get(t, client, scheme+"://"+address, forged)
			return first != "" && second != "" && third != "" && first != second
		})
		if first > second {
			first, second = second, first
		}
		if first != "one"+c.want || second != "two"+c.want {
			t.Errorf("%q: %q and %q, want %q", c.args, first, second, c.want)
		}
		transport.CloseIdleConnections()
		if out := stop(); !strings.HasPrefix(out, "requests ") {
			t.Errorf("%q", out)
		}
	}
}

// passing starts the proxy in front of a handler. It returns its address.
func passing(t *testing.T, handler http.HandlerFunc, args ...string) (address string) {
	t.Helper()
	backend := httptest.NewServer(handler)
	t.Cleanup(backend.Close)
	address, stop := proxied(t, append(args, "--check", "0", "--to", strings.TrimPrefix(backend.URL, "http://"))...)
	t.Cleanup(func() { stop() })
	return address
}

// exchange sends a request, and returns the answer's first line and the rest of it.
func exchange(t *testing.T, address, request string) (first, rest string) {
	t.Helper()
	conn, in := dialProxy(t, address)
	defer conn.Close()
	io.WriteString(conn, request)
	first, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(first), string(all)
}

// A request's target arrives as it was sent.
func TestProxyTarget(t *testing.T) {
	address := passing(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "target:", r.RequestURI, "\n") })
	for _, target := range []string{
		"/via?foo=bar;moo", "/via?a=1&b=%", "/via?100%&x=%zz", "/via?a=b&a=c&=&&", "/via?%41+%20", "/via?", "/via",
		"/a%2Fb/%7Ec//d/../e?q=/%2F", "/via?q=\"<>|",
	} {
		_, rest := exchange(t, address, "GET "+target+" HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n")
		if !strings.HasSuffix(rest, "target:"+target+"\n") {
			t.Errorf("%s: %q", target, rest)
		}
	}
}

// The proxy asks for no compression, and does not undo any, and tells clients no more than the server
// has.
func TestProxyEncoding(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, "text")
	z.Close()
	address := passing(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Got", fmt.Sprint(r.Header["Accept-Encoding"], r.Header["User-Agent"]))
		w.Header()["Content-Type"] = nil
		if r.Header.Get("Accept-Encoding") == "" {
			w.Header().Set("Etag", `"plain"`)
			io.WriteString(w, "text")
			return
		}
		w.Header().Set("Etag", `"packed"`)
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Cache-Control", "no-transform")
		w.Write(packed.Bytes())
	})
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	for accept, want := range map[string]string{
		"":     `[] [] "plain" [] text`,
		"gzip": `[gzip] [] "packed" [] ` + packed.String(),
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["User-Agent"] = nil
		if accept != "" {
			r.Header.Set("Accept-Encoding", accept)
		}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		h := answer.Header
		if got := fmt.Sprint(h.Get("Got"), " ", h.Get("Etag"), " ", h["Content-Type"], " ", string(body)); got != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", accept, got, err, want)
		}
	}
}

// The server decides whether a client that expects 100 sends its body.
func TestProxyExpectContinue(t *testing.T) {
	defer func(d time.Duration) { continueTimeout = d }(continueTimeout)
	continueTimeout = time.Minute
	address := passing(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Header.Get("Expect"), string(body), err)
	})
	const head = " HTTP/1.1\r\nHost: site\r\nConnection: close\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
	if first, _ := exchange(t, address, "POST /refused"+head); first != "HTTP/1.1 401 Unauthorized" {
		t.Errorf("%q, want 401", first)
	}
	conn, in := dialProxy(t, address)
	io.WriteString(conn, "POST /taken"+head)
	if first, err := in.ReadString('\n'); first != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", first, err)
	}
	io.WriteString(conn, "body")
	if rest, err := io.ReadAll(in); !strings.HasSuffix(string(rest), "100-continuebody<nil>") {
		t.Errorf("%q, %v", rest, err)
	}
}

// Only networks of --trust can set a header that names the client.
func TestProxyForwarded(t *testing.T) {
	var forged strings.Builder
	names := strings.Fields(`X-Forwarded-For X-Forwarded-Host X-Forwarded-Proto X-Forwarded-Port X-Forwarded-Prefix
		X-Forwarded-Server X-Forwarded-Ssl X-Forwarded-Scheme X-Forwarded-User X-Real-IP Forwarded X-Forwarded
		X_Forwarded_For x_real_ip x-forwarded-by`)
	for _, name := range names {
		fmt.Fprint(&forged, name, ": forged\r\n")
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		for name, v := range r.Header {
			if name != "Xylophone" && name != "From" {
				fmt.Fprintf(w, "<%s: %s>", name, strings.Join(v, ", "))
			}
		}
	}
	request := "GET / HTTP/1.1\r\nHost: site\r\nConnection: close\r\nFrom: x\r\nXylophone: y\r\n" + forged.String() + "\r\n"
	_, rest := exchange(t, passing(t, handler), request)
	for _, want := range []string{"<X-Forwarded-For: 127.0.0.1>", "<X-Forwarded-Host: site>", "<X-Forwarded-Proto: http>"} {
		if !strings.Contains(rest, want) {
			t.Errorf("%q has no %s", rest, want)
		}
	}
	if strings.Contains(rest, "forged") {
		t.Errorf("the server got %q", rest)
	}
	_, rest = exchange(t, passing(t, handler, "--trust", "127.0.0.0/8"), request)
	for _, want := range []string{"<X-Forwarded-For: forged, 127.0.0.1>", "<X-Forwarded-Host: forged>", "<X-Forwarded-Port: forged>",
		"<X-Forwarded-User: forged>", "<X-Real-Ip: forged>"} {
		if !strings.Contains(rest, want) {
			t.Errorf("%q has no %s", rest, want)
		}
	}
	if strings.Contains(rest, "<Forwarded: ") {
		t.Errorf("the server got %q", rest)
	}
}

// A network contains addresses of any zone, and of IPv4 in the form of IPv6.
func TestProxyNetworks(t *testing.T) {
	all, err := parseNetworks("--trust", []string{"fe80::/10", "10.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"[fe80::1%eth0]:1234": true, "[fe80::1]:1234": true, "10.1.2.3:1": true, "[::ffff:10.1.2.3]:1": true,
		"[fec0::1%eth0]:1234": false, "11.1.2.3:1": false, "@": false, "": false,
	} {
		if got := all.contain(address); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

// An upgraded connection becomes a tunnel.
func TestProxyUpgrade(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(conn, rw)
	}))
	defer backend.Close()
	address, stop := proxied(t, "--to", strings.TrimPrefix(backend.URL, "http://"))
	conn, in := dialProxy(t, address)
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: site\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if r, err := http.ReadResponse(in, nil); err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", r, err)
	}
	io.WriteString(conn, "hello\n")
	if line, err := in.ReadString('\n'); line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
	conn.Close()
	if out := stop(); !strings.Contains(out, "tunnels 1  bytes 6 there, 6 back") {
		t.Errorf("%q", out)
	}
}

// A backend that speaks HTTP/2 after an upgrade is not asked to: it would take a client's requests
// with forged headers. Another protocol in the same list is passed on.
func TestProxyH2C(t *testing.T) {
	seen := make(chan string, 1)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		offer := strings.ToLower(strings.Join(r.Header["Upgrade"], ","))
		if offer == "" {
			seen <- fmt.Sprint(r.Header["Http2-Settings"])
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		protocol := "echo"
		if strings.Contains(offer, "h2c") {
			protocol = r.Header.Get("Upgrade")
		}
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
		line, _ := rw.ReadString('\n')
		seen <- offer + " " + line
	}))
	defer backend.Close()
	address, stop := proxied(t, "--to", strings.TrimPrefix(backend.URL, "http://"))
	for headers, want := range map[string]string{
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__": "[]",
		"Connection: Upgrade\r\nUpgrade: H2C\r\nHTTP2-Settings: AAMAAABkAAQAAP__":                 "[]",
		"Connection: Upgrade\r\nUpgrade: echo, h2c":                                               "echo PRI * HTTP/2.0\r\n",
		"Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: echo":                                    "echo PRI * HTTP/2.0\r\n",
	} {
		conn, in := dialProxy(t, address)
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: site\r\n"+headers+"\r\n\r\n")
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.StatusCode == http.StatusSwitchingProtocols {
			io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		}
		if got := await.Receive(t, "the backend's request", seen); got != want {
			t.Errorf("%q: status %d, the backend got %q, want %q", headers, r.StatusCode, got, want)
		}
		conn.Close()
	}
	stop()
}

func dialProxy(t *testing.T, address string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return conn, bufio.NewReader(conn)
}

// A header of the PROXY protocol is read from listed networks only, and passed on.
func TestProxyTCP(t *testing.T) {
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	address, stop := proxied(t, "--tcp", "--to", backend.Addr().String(), "--check", "0",
		"--proxy-from", "127.0.0.0/8", "--send-proxy")
	conn, _ := dialProxy(t, address)
	io.WriteString(conn, "PROXY TCP4 192.0.2.1 203.0.113.7 40000 443\r\nhello")
	server, err := backend.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	in := bufio.NewReader(server)
	header, err := proxyproto.Read(in)
	if err != nil || header.SourceAddr.String() != "192.0.2.1:40000" {
		t.Fatalf("%v, %v", header, err)
	}
	text := make([]byte, 5)
	if _, err := io.ReadFull(in, text); err != nil || string(text) != "hello" {
		t.Fatalf("%q, %v", text, err)
	}
	server.Close()
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	conn.Close()
	stop()

	address, stop = proxied(t, "--tcp", "--to", backend.Addr().String(), "--check", "0", "--proxy-from", "192.0.2.0/24")
	conn, _ = dialProxy(t, address)
	const line = "PROXY TCP4 192.0.2.1 203.0.113.7 40000 443\r\n"
	io.WriteString(conn, line)
	if server, err = backend.Accept(); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	text = make([]byte, len(line))
	if _, err := io.ReadFull(server, text); err != nil || string(text) != line {
		t.Errorf("%q, %v", text, err)
	}
	conn.Close()
	server.Close()
	stop()
}

func TestProxyUsage(t *testing.T) {
	backendtest.Need(t)
	for args, says := range map[string]string{
		"":                               "--to is missing",
		"--to host":                      "--to: ",
		"--to host:1 --cert x":           "--cert and --key",
		"--to host:1 --send-proxy":       "--send-proxy needs --tcp",
		"--to host:1 --tcp --check-path": "--check-path",
		"--to host:1 --trust 10.0.0.0":   "--trust: ",
		"--to host:1 --proxy-from x":     "--proxy-from: ",
		"--to host:1 --idle -1s":         "must not be negative",
	} {
		if status, _, errs := sh(t, append([]string{"proxy"}, strings.Fields(args)...)...); status != 2 || !strings.Contains(errs, says) {
			t.Errorf("%s: status %d, %q", args, status, errs)
		}
	}
}
