package winsock

import (
	"net/netip"
	"testing"
)

// Names that a socket can have one after the other, and names that it cannot have then.
func TestStays(t *testing.T) {
	a, b := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")
	for _, test := range []struct {
		what   string
		stream bool
		life   []Name
		then   Name
		stays  bool
	}{
		{"never bound", true, []Name{{}}, Name{}, true},
		{"bound and connected", true, []Name{{}, {port: 5}}, Name{5, a}, true},
		{"bound elsewhere", true, []Name{{port: 5}}, Name{port: 6}, false},
		{"no longer bound", true, []Name{{port: 5}}, Name{}, false},
		{"bound elsewhere since", true, []Name{{}, {port: 5}}, Name{port: 6}, false},
		{"another connection", true, []Name{{5, a}}, Name{5, b}, false},
		{"connected since, and another", true, []Name{{port: 5}, {5, a}}, Name{5, b}, false},
		{"the connection is over", true, []Name{{5, a}}, Name{port: 5}, true},
		{"over, and another", true, []Name{{5, a}, {port: 5}}, Name{5, b}, false},
		{"over, and asked again", true, []Name{{5, a}, {port: 5}}, Name{5, a}, true},
		{"a datagram socket connects again", false, []Name{{5, a}}, Name{5, b}, true},
		{"another datagram socket", false, []Name{{5, a}}, Name{6, a}, false},
	} {
		n := test.life[0]
		for _, now := range test.life[1:] {
			if !n.Stays(now, test.stream) {
				t.Errorf("%s: %v is not %v", test.what, n, now)
			}
		}
		if got := n.Stays(test.then, test.stream); got != test.stays {
			t.Errorf("%s: %v, then %v: %t", test.what, n, test.then, got)
		}
	}
}
