//go:build linux || windows

package sock

import (
	"net/netip"
	"testing"
	"unsafe"
)

// FuzzDecodeAddr decodes addresses that a system may return, of any family and truncated. The decoded address must
// encode to the same bytes. An address of another family must decode to the zero AddrPort.
func FuzzDecodeAddr(f *testing.F) {
	for _, s := range []string{
		"127.0.0.1:80", "0.0.0.0:0", "255.255.255.255:65535", "[::]:0", "[::1]:443", "[::ffff:192.0.2.1]:1",
		"[fe80::1%7]:9", "[::ffff:192.0.2.1%3]:1", "[fe80::1%4294967295]:65535",
	} {
		var sa rawAny
		size, err := encode(netip.MustParseAddrPort(s), &sa)
		if err != nil {
			f.Fatal(err)
		}
		b := unsafe.Slice((*byte)(unsafe.Pointer(&sa)), size)
		f.Add(append([]byte(nil), b...))
		f.Add(append([]byte(nil), b[:len(b)/2]...))
	}
	f.Add([]byte{})
	f.Add([]byte{1, 0, '/', 't', 'm', 'p', '/', 's', 0}) // a Unix socket
	f.Add([]byte{1, 0, 0, 'n', 'a', 'm', 'e'})           // an abstract Unix socket
	f.Add([]byte{16, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var sa rawAny
		all := unsafe.Slice((*byte)(unsafe.Pointer(&sa)), unsafe.Sizeof(sa))
		copy(all, b)
		a := decode(&sa)
		family := sa.Addr.Family
		if family != afInet4 && family != afInet6 {
			if a != (netip.AddrPort{}) {
				t.Fatalf("family %d: %v", family, a)
			}
			return
		}
		if !a.IsValid() || a.Addr().Is4() != (family == afInet4) {
			t.Fatalf("family %d: %v", family, a)
		}
		// The port has two bytes in network order on every processor.
		if port := uint16(all[2])<<8 | uint16(all[3]); a.Port() != port {
			t.Fatalf("%v; want port %d", a, port)
		}
		if got := a.Addr().AsSlice(); family == afInet4 && string(got) != string(all[4:8]) ||
			family == afInet6 && string(got) != string(all[8:24]) {
			t.Fatalf("%v of % x", a, all[:28])
		}
		var again rawAny
		size, err := encode(a, &again)
		if err != nil {
			t.Fatalf("%v: %v", a, err)
		}
		if back := decode(&again); back != a {
			t.Fatalf("%v of %d bytes; want %v", back, size, a)
		}
		text, err := netip.ParseAddrPort(a.String())
		if err != nil || text != a {
			t.Fatalf("%v reads as %v, %v", a, text, err)
		}
	})
}
