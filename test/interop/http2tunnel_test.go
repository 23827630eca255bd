package interop

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/tunnel"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/internal/test/sockettest"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
)

// nodeTunnels opens tunnels on one connection of Node.js's HTTP/2 client. The first line that it
// sends on each says what the host is to do. Its arguments are the proxy, the host, the protocol of
// extended CONNECT requests or "none", and whether nothing is between it and the proxy.
const nodeTunnels = `
	import http2 from 'node:http2'
	import { once } from 'node:events'
	const [url, host, protocol, direct] = process.argv.slice(-4)
	const fail = e => { console.log('failed', e); process.exit(1) }
	process.on('unhandledRejection', fail)
	const session = http2.connect(url, { rejectUnauthorized: false })
	session.on('error', fail)
	session.on('goaway', code => fail('GOAWAY ' + code))
	await once(session, 'remoteSettings')
	const ask = async authority => {
		const head = { ':method': 'CONNECT', ':authority': authority }
		const more = { ':protocol': protocol, ':scheme': 'http', ':path': '/' }
		if (protocol !== 'none') Object.assign(head, more)
		const s = session.request(head, { endStream: false })
		s.on('error', () => {}) // closed has the code
		const [answer] = await once(s, 'response')
		s.status = answer[':status']
		return s
	}
	const open = async () => {
		const s = await ask(host)
		return s.status === 200 ? s : fail(s.status)
	}
	const closed = async s => {
		if (!s.destroyed) await new Promise(r => s.on('close', r)) // once fails with the stream
		return s.rstCode
	}
	const sequence = (at, n) => {
		const b = Buffer.alloc(n)
		for (let i = 0; i < n; i++) b[i] = (at + i) ^ ((at + i) >> 8) ^ ((at + i) >> 16)
		return b
	}
	// Bytes are checked as they come.
	const read = (s, until, slow) => new Promise(done => {
		let at = 0
		s.on('data', b => {
			if (!b.equals(sequence(at, b.length))) fail('other bytes after ' + at)
			at += b.length
			if (until >= 0 && at >= until) done(at)
			if (slow) {
				s.pause()
				setTimeout(() => s.resume(), 1)
			}
		})
		s.on('end', () => done(at))
	})
	const send = async (s, n) => {
		for (let at = 0; at < n;) {
			const part = sequence(at, Math.min(1 + at * 7 % 50000, n - at))
			at += part.length
			if (!s.write(part)) await once(s, 'drain')
		}
	}
	const echo = async i => {
		const n = i * i * 3000
		const s = await open()
		s.write('echo ' + n + '\n')
		const got = read(s, -1, i % 4 === 0)
		await send(s, n)
		if (direct === 'true') s.end()
		const right = await got === n
		s.end()
		return right && await closed(s)
	}
	console.log('echo', ...await Promise.all(Array.from({ length: 20 }, (_, i) => echo(i))))

	let s = await open() // the host ends first
	s.write('first\n')
	let got = await read(s, -1)
	s.write('after')
	s.end()
	console.log('first', got, await closed(s))

	s = await open() // the client resets
	s.write('wait\n')
	await read(s, 5)
	s.close(http2.constants.NGHTTP2_CANCEL)
	console.log('wait', await closed(s))

	s = await open() // the host resets
	s.write('reset\n')
	await read(s, 5)
	console.log('reset', await closed(s))

	s = await open() // both are busy, and the client resets
	s.write('flood\n')
	send(s, 1 << 30).catch(() => {})
	await read(s, 3 << 20)
	s.close(http2.constants.NGHTTP2_CANCEL)
	console.log('busy', await closed(s))

	if (direct === 'true') {
		s = await open() // both are busy, and the host resets
		s.write('cut\n')
		send(s, 1 << 30).catch(() => {})
		read(s, -1)
		console.log('cut', await closed(s))
	}

	s = await ask('127.0.0.2:1') // it is not the host
	s.resume()
	s.end()
	await closed(s)
	console.log('refused', s.status)

	s = await open() // the client's connection ends
	s.write('wait\n')
	await read(s, 5)
	session.destroy()
	console.log('done')
`

// A tunnelHost is to what the clients connect. ends gets how each connection has ended.
type tunnelHost struct {
	net.Listener
	t       *testing.T
	tunnels *tunnel.Tunnels
	ends    chan string
}

func (h *tunnelHost) serve() {
	for {
		conn, err := h.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(time.Minute))
			in := bufio.NewReader(conn)
			line, _ := in.ReadString('\n')
			h.ends <- h.do(line, conn.(*net.TCPConn), in)
		}()
	}
}

// do does what a line says, and returns a description of the end.
func (h *tunnelHost) do(line string, conn *net.TCPConn, in *bufio.Reader) string {
	describe := func(b []byte, err error) string {
		switch {
		case err == nil:
			return fmt.Sprintf("%q, EOF", b)
		case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
			return "reset"
		}
		return err.Error()
	}
	rest := func() string { return describe(io.ReadAll(in)) }
	// flood sends and reads, until n bytes were sent or the connection fails.
	flood := func(n int) error {
		go func() {
			buf := make([]byte, 32<<10)
			for at := 0; ; {
				n, err := in.Read(buf)
				if at += n; string(buf[:n]) != string(sockettest.Sequence(at-n, n)) {
					h.t.Error("the host got other bytes")
				}
				if err != nil {
					return
				}
			}
		}()
		for at := 0; at < n; at += 10_000 {
			if _, err := conn.Write(sockettest.Sequence(at, 10_000)); err != nil {
				return err
			}
		}
		return nil
	}
	reset := func() {
		conn.SetLinger(0)
		conn.Close()
	}
	parked := func() {
		await.Until(h.t, "the tunnel is parked", func() bool {
			st := h.tunnels.Stats()
			return st.Parked == 2 && st.Running == 0
		})
	}
	switch line = strings.TrimSuffix(line, "\n"); line {
	case "first":
		conn.Write(sockettest.Sequence(0, 100_000))
		conn.CloseWrite()
		return "first: " + rest()
	case "wait":
		conn.Write(sockettest.Sequence(0, 5))
		b, err := io.ReadAll(in)
		for err == nil { // Node.js sends END_STREAM before RST_STREAM
			_, err = conn.Write([]byte("x"))
		}
		return "wait: " + describe(b, err)
	case "reset":
		conn.Write(sockettest.Sequence(0, 5))
		parked()
		reset()
		return "reset"
	case "flood":
		return "flood: " + describe(nil, flood(1<<30))
	case "cut":
		err := flood(4 << 20)
		reset()
		return "cut: " + describe(nil, err)
	}
	var n int
	fmt.Sscanf(line, "echo %d", &n)
	if _, err := io.CopyN(conn, in, int64(n)); err != nil {
		return err.Error()
	}
	conn.CloseWrite()
	return "echo: " + rest()
}

// serveForward serves a forward proxy by HTTP/2. Extended CONNECT requests are for the host too.
func serveForward(t *testing.T, secure bool) (address string, h *tunnelHost) {
	t.Helper()
	h = &tunnelHost{Listener: listen(t), t: t}
	h.tunnels, h.ends = new(tunnel.Tunnels), make(chan string, 100)
	t.Cleanup(func() { h.Close() })
	go h.serve()
	connect := &tunnel.ConnectProxy{Tunnels: h.tunnels, Ports: []int{h.Addr().(*net.TCPAddr).Port},
		Inside: []string{"127.0.0.1"}, Allow: func(*http.Request, netip.AddrPort) bool { return true }}
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header[":protocol"] == nil:
			connect.ServeHTTP(w, r)
			return
		case r.Host != h.Addr().String():
			http.Error(w, "not the host", http.StatusForbidden)
			return
		}
		conn, err := net.Dial("tcp", r.Host)
		if err == nil {
			if _, err = h.tunnels.JoinResponse(w, conn, tunnel.Options{}); err != nil {
				conn.Close()
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	hs := &http.Server{Handler: http.HandlerFunc(handler), Protocols: new(http.Protocols)}
	hs.Protocols.SetHTTP2(true)
	hs.Protocols.SetUnencryptedHTTP2(true)
	cert, _, err := selfcert.New(time.Hour, "127.0.0.1")
	must(t, err)
	hs.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	server := &park.HTTPServer{HTTP2: &http2.Server{ExtendedConnect: true}, Linger: -1, Server: hs}
	l := listen(t)
	served := make(chan error, 1)
	go func() {
		if secure {
			served <- server.ServeTLS(l, "", "")
		} else {
			served <- server.Serve(l)
		}
	}()
	t.Cleanup(func() {
		server.Close()
		<-served
		must(t, h.tunnels.Shutdown(context.Background()))
	})
	return l.Addr().String(), h
}

// A tunnelRun is a run of the script.
type tunnelRun struct {
	protocol string
	direct   bool // nothing is between Node.js and our proxy
	reset    int  // the code that a direct client gets when the host has reset
}

// resetCode is the line of the script with the code that the client gets when the host has reset.
var resetCode = regexp.MustCompile(`(?m)^reset \d+$`)

// test compares what the script prints, and how the host's connections end.
func (r tunnelRun) test(t *testing.T, url string, h *tunnelHost) {
	t.Helper()
	out, err := runNode(t, nodeTunnels, url, h.Addr().String(), r.protocol, fmt.Sprint(r.direct))
	first, cut := `first: "after", EOF`, fmt.Sprint("cut ", r.reset, "\n")
	want := append(slices.Repeat([]string{`echo: "", EOF`}, 20),
		"wait: reset", "reset", "flood: reset", "wait: reset")
	if r.direct {
		want = append(want, `cut: "", EOF`)
	} else {
		first, cut, out = "first", "", resetCode.ReplaceAllString(out, "reset 0")
	}
	want = append(want, first)
	wantOut := fmt.Sprintf("echo%s\nfirst 100000 0\nwait 8\nreset %d\nbusy 8\n%srefused 403\ndone\n",
		strings.Repeat(" 0", 20), r.reset, cut)
	if err != nil || out != wantOut {
		t.Fatalf("%v, got\n%s, want\n%s", err, out, wantOut)
	}
	var got []string
	for range want {
		end := await.Receive(t, "the end of a connection", h.ends)
		if !r.direct && strings.HasPrefix(end, "first: ") {
			end = first
		}
		got = append(got, end)
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the host's connections: %q, want %q", got, want)
	}
	await.Until(t, "the tunnels have ended", func() bool { return h.tunnels.Stats().Conns == 0 })
	if st := h.tunnels.Stats(); st.Unparkable != 0 || st.Panics != 0 || st.QueuedBytes != 0 {
		t.Errorf("%+v", st)
	}
}

// Node.js's HTTP/2 client opens tunnels by CONNECT and by extended CONNECT. Every byte arrives in
// both directions, and half-closes and resets do.
func TestNodeTunnels(t *testing.T) {
	for _, c := range []struct {
		name, protocol string
		secure         bool
		reset          int
	}{
		{"CONNECT", "none", false, 10}, {"CONNECT, TLS", "none", true, 10},
		{"extended CONNECT", "any", false, 8}, {"extended CONNECT, TLS", "any", true, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			address, h := serveForward(t, c.secure)
			scheme := "http://"
			if c.secure {
				scheme = "https://"
			}
			tunnelRun{c.protocol, true, c.reset}.test(t, scheme+address, h)
		})
	}
}

// nghttpx starts nghttpx with our server as its backend, and returns its address.
func nghttpx(t *testing.T, backend string, secure bool, options ...string) (address string) {
	t.Helper()
	path, err := exec.LookPath("nghttpx")
	if err != nil {
		t.Skip("nghttpx is not installed: ", err)
	}
	address = freeport.Addrs(t, 1)[0]
	comma := func(address string) string { return strings.Replace(address, ":", ",", 1) }
	dir := t.TempDir()
	args := append([]string{"--single-process", "--conf=" + os.DevNull, "--no-ocsp",
		"-b", comma(backend) + ";;proto=h2"}, options...)
	if secure {
		cert, _, err := selfcert.New(time.Hour, "127.0.0.1")
		must(t, err)
		key, err := x509.MarshalECPrivateKey(cert.PrivateKey.(*ecdsa.PrivateKey))
		must(t, err)
		args = append(args, "-f", comma(address))
		for _, b := range []pem.Block{{Type: "EC PRIVATE KEY", Bytes: key},
			{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}} {
			file := filepath.Join(dir, b.Type)
			must(t, os.WriteFile(file, pem.EncodeToMemory(&b), 0o600))
			args = append(args, file)
		}
	} else {
		args = append(args, "-f", comma(address)+";no-tls")
	}
	var log strings.Builder
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Log(log.String())
		}
	})
	await.Until(t, "nghttpx accepts connections", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return address
}

// nghttpx passes tunnels of its clients on to our server, on one connection: CONNECT as a forward
// proxy, and WebSockets as a reverse proxy. Every byte arrives, and so do a client's reset and the
// end of the host's stream. nghttpx 1.52 passes on neither the end of a client's stream, nor what a
// client sends after the end of the host's, so that such tunnels end by HalfCloseTimeout. For its
// client it makes a reset of the host the end of the stream, or with TLS and many bytes under way
// nothing. The test does not compare these.
func TestNghttpx(t *testing.T) {
	for _, c := range []struct {
		name, protocol string
		secure         bool
		options        []string
	}{
		{"CONNECT", "none", false, []string{"--http2-proxy", "--backend-connections-per-host=100"}},
		{"CONNECT, TLS", "none", true, []string{"--http2-proxy", "--backend-connections-per-host=100"}},
		{"extended CONNECT", "websocket", false, nil},
		{"extended CONNECT, TLS", "websocket", true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			address, h := serveForward(t, false)
			h.tunnels.HalfCloseTimeout = 300 * time.Millisecond
			front := "http://" + nghttpx(t, address, c.secure, c.options...)
			if c.secure {
				front = strings.Replace(front, "http", "https", 1)
			}
			tunnelRun{protocol: c.protocol}.test(t, front, h)
		})
	}
}
