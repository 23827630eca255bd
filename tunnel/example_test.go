package tunnel_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"

	"github.com/socknotify/socknotify/tunnel"

	"github.com/socknotify/socknotify/park"
)

// Two connections become a tunnel.
func ExampleTunnels() {
	var tunnels tunnel.Tunnels
	defer tunnels.Close()
	address := echoServer()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	go func() { // the proxy
		client, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		backend, err := net.Dial("tcp", address)
		if err != nil {
			log.Fatal(err)
		}
		err = tunnels.Join(client, backend)
		if err != nil {
			log.Fatal(err)
		}
	}()

	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintln(conn, "there and back")
	line, err := bufio.NewReader(conn).ReadString('\n')
	fmt.Print(line, err, "\n")
	// Output:
	// there and back
	// <nil>
}

// echoServer returns the address of a server that echoes one connection.
func echoServer() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		defer l.Close()
		if conn, err := l.Accept(); err == nil {
			defer conn.Close()
			io.Copy(conn, conn)
		}
	}()
	return l.Addr().String()
}

// Upgraded connections of a reverse proxy, such as WebSockets, become tunnels.
func ExampleTunnels_ReverseProxy() {
	rewrite := func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: "127.0.0.1:8080"})
	}
	var tunnels tunnel.Tunnels
	proxy := &httputil.ReverseProxy{Rewrite: rewrite}
	server := park.HTTPServer{Server: &http.Server{Handler: tunnels.ReverseProxy(proxy)}}
	defer server.Close()
}

// Another proxy that copies, here httputil's own, is put between two wrappers.
func ExampleTunnels_Handler() {
	rewrite := func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: "127.0.0.1:8080"})
	}
	var tunnels tunnel.Tunnels
	proxy := &httputil.ReverseProxy{Rewrite: rewrite, Transport: tunnels.RoundTripper(http.DefaultTransport)}
	server := park.HTTPServer{Server: &http.Server{Handler: tunnels.Handler(proxy)}}
	defer server.Close()
}

// A forward proxy for clients that know a secret.
func ExampleConnectProxy() {
	authorized := func(r *http.Request) bool {
		return r.Header.Get("Proxy-Authorization") == "Bearer secret"
	}
	var tunnels tunnel.Tunnels
	forward := &tunnel.ConnectProxy{
		Tunnels: &tunnels,
		Allow:   func(r *http.Request, addr netip.AddrPort) bool { return authorized(r) },
	}
	server := park.HTTPServer{Server: &http.Server{Handler: forward}}
	defer server.Close()
}
