package sock

import (
	"errors"
	"fmt"
	"testing"
)

func TestNamesOf(t *testing.T) {
	keep := func(s *Socket, err error) *Socket {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	l := keep(ListenTCP(Loopback, ListenOptions{}))
	u := keep(New(UDP4))
	if err := u.Bind(Loopback); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		s    *Socket
		want Names
	}{
		{l, Names{"tcp", l.LocalAddr().String(), "", true}},
		{u, Names{"udp", u.LocalAddr().String(), "", false}},
		{keep(New(TCP4)), Names{"tcp", "0.0.0.0:0", "", false}},
		{keep(New(UDP4)), Names{"udp", "0.0.0.0:0", "", false}},
	}
	if x, y, err := UnixPair(false); err == nil {
		keep(x, nil)
		keep(y, nil)
		cases = append(cases, struct {
			s    *Socket
			want Names
		}{x, Names{"unix", "", "", false}})
	} else if !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	if x, y, err := UnixPair(true); err == nil {
		keep(x, nil)
		keep(y, nil)
		cases = append(cases, struct {
			s    *Socket
			want Names
		}{x, Names{"unixgram", "", "", false}})
	}
	for _, c := range cases {
		if got, err := NamesOf(c.s.Handle()); got != c.want || err != nil {
			t.Errorf("%+v, %v; want %+v", got, err, c.want)
		}
	}
	var failed *Error
	if _, err := NamesOf(^uintptr(0)); !errors.As(err, &failed) || failed.Op != "names" {
		t.Errorf("invalid handle: %v", err)
	}
}

func ExampleNamesOf() {
	s, err := New(UDP4)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	names, err := NamesOf(s.Handle())
	fmt.Println(names.Network, names.Listening, err)
	// Output: udp false <nil>
}
