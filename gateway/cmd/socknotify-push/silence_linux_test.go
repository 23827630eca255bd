package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/selfcert"
)

// A client of Server-Sent Events whose machine vanishes is noticed, although nothing is closed. A filter at the client's
// socket drops what the gateway sends, so that nothing is acknowledged.
func TestVanishedClient(t *testing.T) {
	defer func(before time.Duration) { maxSilence = before }(maxSilence)
	maxSilence = time.Second
	cert, _, err := selfcert.New(time.Hour, "127.0.0.1")
	must(t, err)
	certificate, key, err := selfcert.PEM(cert)
	must(t, err)
	files := []string{filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")}
	must(t, os.WriteFile(files[0], certificate, 0o600))
	must(t, os.WriteFile(files[1], key, 0o600))
	for kind, args := range map[string][]string{"plain": nil, "TLS": {"--cert", files[0], "--key", files[1]}} {
		t.Run(kind, func(t *testing.T) { vanish(t, args) })
	}
}

func vanish(t *testing.T, args []string) {
	url, debug, _ := start(t, append(args, "--store", t.TempDir(), "--heartbeat", "100ms")...)
	scheme, address, _ := strings.Cut(url, "://")
	tcp, err := net.Dial("tcp", address)
	must(t, err)
	conn := tcp
	if scheme == "https" {
		conn = tls.Client(tcp, &tls.Config{InsecureSkipVerify: true})
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /events?topic=news HTTP/1.1\r\nHost: localhost\r\n\r\n")
	in := bufio.NewReader(conn)
	for line := ""; !strings.HasPrefix(line, "id: "); {
		line, err = in.ReadString('\n')
		must(t, err)
	}
	clients := func(n int) bool {
		_, body := ask(t, "GET", debug+"/status", "")
		return strings.Contains(body, fmt.Sprintf(`"Conns":%d,`, n))
	}
	until(t, "the client is counted", func() bool { return clients(1) })
	raw, err := tcp.(*net.TCPConn).SyscallConn()
	must(t, err)
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	must(t, raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	}))
	must(t, err)
	until(t, "the client is gone", func() bool { return clients(0) })
}
