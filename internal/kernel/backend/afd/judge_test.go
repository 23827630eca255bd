package afd

import "testing"

func TestJudge(t *testing.T) {
	const asked = receive | disconnect | abort | localClose
	for _, c := range []struct {
		name                    string
		status, sockets, events uint32
		want                    uint32
	}{
		{"readable", 0, 1, receive, receive},
		{"closed here", 0, 1, localClose, localClose},
		{"connect refused, which is the socket's status and not the poll's", 0, 1, connectFail, connectFail},
		{"cancelled, Wine: the events are those asked for", 0xc0000120, 1, asked, 0},
		{"cancelled, Windows", 0xc0000120, 0, 0, 0},
		{"timed out", 0x102, 0, asked, 0},
		{"transferred by an exclusive poll", 0, 0, asked, 0},
		{"its helper was closed", 0x8000000a, 1, asked, 0},
		{"no memory", 0xc000009a, 1, asked, 0},
	} {
		if got := judge(c.status, c.sockets, c.events); got != c.want {
			t.Errorf("%s: %#x; want %#x", c.name, got, c.want)
		}
	}
}
