package outbound

import (
	"net"
	"strings"
	"testing"
)

// No request of the configuration connects to an address that is inside of a network, in any form.
func TestOutboundIsPublic(t *testing.T) {
	for _, ip := range strings.Fields(`127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 0.0.0.0
		100.64.0.1 100.127.255.255 198.18.0.1 198.19.255.255 192.0.0.1 192.0.2.1 198.51.100.1 203.0.113.1
		240.0.0.1 255.255.255.255 168.63.129.16 224.0.0.1 ::1 :: ::ffff:10.0.0.1 ::ffff:100.64.0.1 ::10.0.0.1
		64:ff9b::10.0.0.1 64:ff9b::168.63.129.16 64:ff9b:1::10.0.0.1 64:ff9b:1::1 2002:a00:1::1
		2002:6440:1::1 fec0::1 2001:db8::1 2001::1 fe80::1 fd00::1 ff02::1`) {
		if err := onlyPublic("tcp", net.JoinHostPort(ip, "443"), nil); err != ErrPrivate {
			t.Errorf("%s: %v", ip, err)
		}
	}
	for _, ip := range strings.Fields("8.8.8.8 100.128.0.1 2606:4700:4700::1111 64:ff9b::8.8.8.8") {
		if err := onlyPublic("tcp", net.JoinHostPort(ip, "443"), nil); err != nil {
			t.Errorf("%s: %v", ip, err)
		}
	}
}
