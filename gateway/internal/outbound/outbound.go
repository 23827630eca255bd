package outbound

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/tunnel"
)

var ErrPrivate = errors.New("the address is not public")

// Transport returns a transport for requests to a server of the configuration, without a proxy. If
// private is false it connects to public addresses alone, whatever names stand for.
func Transport(private bool, timeout time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: timeout}
	if !private {
		dialer.Control = onlyPublic
	}
	return &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: timeout}
}

// onlyPublic is called with the address that is about to be connected to.
func onlyPublic(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || tunnel.IsInside(to.Addr()) {
		return ErrPrivate
	}
	return nil
}

func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
