package sock

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/qemu"
)

// Addresses of interfaces other than the loopback interface are not available everywhere. So this test compares the
// bytes that are passed to the system.

func TestEncode(t *testing.T) {
	if qemu.BreaksNetlink.Here() {
		t.Skip(qemu.BreaksNetlink)
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip(err)
	}
	index := strconv.Itoa(lo.Index)
	for _, c := range []struct {
		in, out string // out is the decoded encoding of in
		size    uintptr
		scope   uint32
	}{
		{"127.0.0.1:0", "127.0.0.1:0", 16, 0},
		{"255.255.255.255:65535", "255.255.255.255:65535", 16, 0},
		{"0.0.0.0:258", "0.0.0.0:258", 16, 0},
		{"[::1]:1", "[::1]:1", 28, 0},
		{"[2001:db8::ff00:42:8329]:443", "[2001:db8::ff00:42:8329]:443", 28, 0},
		{"[::ffff:192.0.2.1]:80", "[::ffff:192.0.2.1]:80", 28, 0},
		{"[fe80::1%7]:9", "[fe80::1%7]:9", 28, 7},
		{"[fe80::1%4294967295]:9", "[fe80::1%4294967295]:9", 28, 4294967295},
		{"[fe80::1%0]:9", "[fe80::1]:9", 28, 0},
		{"[fe80::1%lo]:9", "[fe80::1%" + index + "]:9", 28, uint32(lo.Index)},
	} {
		a := netip.MustParseAddrPort(c.in)
		var sa unix.RawSockaddrAny
		size, err := encode(a, &sa)
		if err != nil || size != c.size {
			t.Errorf("%s: %d bytes, %v", c.in, size, err)
			continue
		}
		raw := unsafe.Slice((*byte)(unsafe.Pointer(&sa)), size)
		if got := binary.BigEndian.Uint16(raw[2:]); got != a.Port() {
			t.Errorf("%s: port %d", c.in, got)
		}
		if size == 28 && binary.NativeEndian.Uint32(raw[24:]) != c.scope {
			t.Errorf("%s: scope %x", c.in, raw[24:])
		}
		if got := decode(&sa).String(); got != c.out {
			t.Errorf("%s: decoded to %s", c.in, got)
		}
	}
	for _, bad := range []netip.AddrPort{
		{},
		netip.AddrPortFrom(netip.Addr{}, 80),
		netip.MustParseAddrPort("[fe80::1%no-such-interface]:1"),
		netip.MustParseAddrPort("[fe80::1%4294967296]:1"), // too large for an interface index
		netip.MustParseAddrPort("[fe80::1%-1]:1"),
	} {
		var sa unix.RawSockaddrAny
		if _, err := encode(bad, &sa); err == nil || sa.Addr.Family != 0 {
			t.Errorf("%v: %v, family %d", bad, err, sa.Addr.Family)
		}
	}
}

// Encoding over a longer address leaves none of its bytes.
func TestEncodeReusedBuffer(t *testing.T) {
	var sa, fresh unix.RawSockaddrAny
	for i := range unsafe.Slice((*byte)(unsafe.Pointer(&sa)), unsafe.Sizeof(sa)) {
		unsafe.Slice((*byte)(unsafe.Pointer(&sa)), unsafe.Sizeof(sa))[i] = 0xff
	}
	for _, a := range []string{"[fe80::1%3]:9", "[::1]:1", "127.0.0.1:5"} {
		size, _ := encode(netip.MustParseAddrPort(a), &sa)
		encode(netip.MustParseAddrPort(a), &fresh)
		got, want := unsafe.Slice((*byte)(unsafe.Pointer(&sa)), size), unsafe.Slice((*byte)(unsafe.Pointer(&fresh)), size)
		if string(got) != string(want) {
			t.Errorf("%s: %x, want %x", a, got, want)
		}
	}
}

func TestDecodeOtherFamily(t *testing.T) {
	for _, family := range []uint16{unix.AF_UNSPEC, unix.AF_UNIX, unix.AF_NETLINK} {
		sa := unix.RawSockaddrAny{}
		sa.Addr.Family = family
		if got := decode(&sa); got != (netip.AddrPort{}) {
			t.Errorf("family %d: %v", family, got)
		}
	}
}

// Processors such as mips fault where a number is not aligned. Where none does, as on amd64, this cannot fail; the workflow
// has it run on mips64le every night.
func TestEncodeUnaligned(t *testing.T) {
	var memory [2]struct {
		_  uint32
		_  uint16
		sa unix.RawSockaddrAny
	}
	for _, text := range []string{"127.0.0.1:1", "[fe80::1%7]:9"} {
		for i := range memory {
			sa, want := &memory[i].sa, netip.MustParseAddrPort(text)
			if uintptr(unsafe.Pointer(sa))%4 != 2 {
				t.Fatal("the address is aligned")
			}
			if _, err := encode(want, sa); err != nil || decode(sa) != want {
				t.Errorf("%v: %v, %v", want, decode(sa), err)
			}
		}
	}
}

// Decoding returns the address that was encoded, except that a zone may be spelled differently.
func FuzzEncode(f *testing.F) {
	for _, a := range []string{"127.0.0.1", "::1", "::ffff:10.0.0.1", "fe80::1", "ff02::1"} {
		f.Add(netip.MustParseAddr(a).AsSlice(), uint32(0), uint16(1))
		f.Add(netip.MustParseAddr(a).AsSlice(), uint32(70000), uint16(40000))
	}
	f.Fuzz(func(t *testing.T, ip []byte, zone uint32, port uint16) {
		a, ok := netip.AddrFromSlice(ip)
		if !ok {
			return
		}
		if zone != 0 {
			a = a.WithZone(strconv.FormatUint(uint64(zone), 10)) // no effect for IPv4
		}
		var sa unix.RawSockaddrAny
		want := netip.AddrPortFrom(a, port)
		if _, err := encode(want, &sa); err != nil || decode(&sa) != want {
			t.Errorf("%v: %v, %v", want, decode(&sa), err)
		}
	})
}

func TestListenOptions(t *testing.T) {
	for _, dual := range []bool{false, true} {
		s, err := New(TCP6)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			t.Skip("this kernel has no IPv6")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		// Read the option before Bind: for a socket bound to one address the system always reports IPv6 only.
		if err := sysListenOptions(s.Handle(), Loopback6, ListenOptions{DualStack: dual}); err != nil {
			t.Fatal(err)
		}
		if v, err := unix.GetsockoptInt(int(s.Handle()), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY); err != nil || (v == 0) != dual {
			t.Errorf("DualStack %v: IPV6_V6ONLY %d, %v", dual, v, err)
		}
	}
}
