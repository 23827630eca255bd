//go:build unix || windows

package model

import (
	"testing"

	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// regressions are sequences that are run on every backend, with and without waiters: those that once
// failed, and some that say what a sequence looks like.
var regressions = []struct {
	name string
	ops  []Op
}{
	{"level one-shot, enabled again while it holds", []Op{
		{Do: Enable, Filter: 5, Trigger: 5},
		{Do: PeerSend},
		{Do: Wait, N: 1},
		{Do: Enable, Filter: 5, Trigger: 5, Batch: true},
		{Do: Wait, N: 1},
	}},
	{"reused number, same key", []Op{
		{Do: Enable, Filter: 7, Trigger: 5},
		{Do: PeerSend},
		{Do: DupClose},
		{Do: Open},
		{Do: Enable, Key: keyOld, Filter: 5, Trigger: 5},
		{Do: Settle},
	}},
	{"shut in both directions, then the peer closes", []Op{
		{Do: ShutWrite},
		{Do: ShutRead},
		{Do: Enable, Sock: 3, Filter: 5, Trigger: 4, Drained: true, Batch: true, BySock: true},
		{Do: PeerSend, Sock: 3, N: 1},
		{Do: Enable, Filter: 5, Trigger: 10, Batch: true, BySock: true},
		{Do: PeerSend, N: 6},
		{Do: Wait, N: 3},
		{Do: PeerClose},
	}},
	{"drained", []Op{
		{Do: Enable, Filter: 1, Trigger: 5},
		{Do: PeerSend},
		{Do: Wait, N: 1},
		{Do: RecvAll},
		{Do: PeerSend},
		{Do: Enable, Filter: 1, Trigger: 5, Drained: true, Batch: true},
		{Do: Wait, N: 1},
	}},
	{"drained, but reported while disabled", []Op{
		{Do: Enable, Filter: 1, Trigger: 5},
		{Do: PeerSend},
		{Do: Wait, N: 1},
		{Do: RecvAll},
		{Do: PeerSend},
		{Do: WaitAll, N: 1},
		{Do: Enable, Filter: 1, Trigger: 5, Drained: true},
		{Do: Settle},
	}},
	{"drained, but silenced while disabled", []Op{
		{Do: Enable, Filter: 1, Trigger: 5},
		{Do: PeerSend},
		{Do: Wait, N: 1},
		{Do: PeerSend},
		{Do: WaitAll, N: 1},
		{Do: PeerSend},
		{Do: WaitAll, N: 1},
		{Do: RecvAll},
		{Do: PeerSend},
		{Do: WaitAll, N: 1},
		{Do: Enable, Filter: 1, Trigger: 5, Drained: true},
		{Do: Settle},
	}},
	{"abort, and its error read", []Op{
		{Do: Enable, Filter: 7, Trigger: 8},
		{Do: PeerReset},
		{Do: Wait, N: 1},
		{Do: ReadErr},
		{Do: Enable, Filter: 2, Trigger: 5},
		{Do: Settle},
	}},
	{"vouched for by the program, and tied to the socket", []Op{
		{Do: Enable, Filter: 1, Trigger: 5},
		{Do: PeerSend},
		{Do: Wait, N: 1},
		{Do: RecvAll},
		{Do: Enable, Filter: 1, Trigger: 5, Drained: true, BySock: true},
		{Do: DupClose},
		{Do: OldPeers},
		{Do: Settle},
	}},
	{"silent, kept alive, and its number a listener's", []Op{
		{Do: Enable, Sock: 2, Filter: 5, Trigger: 5},
		{Do: PeerSend, Sock: 2},
		{Do: Wait, N: 1},
		{Do: DupClose, Sock: 2},
		{Do: Open, Sock: 2, N: 3},
		{Do: Enable, Sock: 2, Key: keyOld, Filter: 5, Trigger: 5},
		{Do: Deregister, Sock: 2},
		{Do: Settle},
	}},
	{"strict edge, half closed, sent until it would block, closed", []Op{
		{Do: NewPort, N: 1},
		{Do: Enable, Sock: 1, Filter: 6, Trigger: 8, BySock: true},
		{Do: PeerShutWrite, Sock: 1},
		{Do: Wait, N: 1},
		{Do: SendFull, Sock: 1},
		{Do: PeerRecvAll, Sock: 1},
		{Do: PeerClose, Sock: 1},
		{Do: Settle},
	}},
	{"strict edge, shut for receiving, then the peer shuts", []Op{
		{Do: NewPort, N: 1},
		{Do: ShutRead, Sock: 1},
		{Do: Enable, Sock: 1, Filter: 6, Trigger: 10, BySock: true},
		{Do: PeerShutWrite, Sock: 1},
		{Do: Settle},
	}},
	{"strict edge, registered by its socket and enabled by its handle", []Op{
		{Do: NewPort, N: 1},
		{Do: Enable, Filter: 1, Trigger: 5, BySock: true},
		{Do: PeerSend},
		{Do: Enable, Filter: 1, Trigger: 8},
		{Do: RecvAll},
		{Do: PeerSend},
		{Do: Settle},
	}},
	{"taken over by another port", []Op{
		{Do: Enable, Filter: 1, Trigger: 4},
		{Do: Enable, Port: 1, Filter: 1, Trigger: 4},
		{Do: Replace},
		{Do: Enable, Port: 1, Filter: 1, Trigger: 4},
		{Do: Enable, Filter: 1, Trigger: 4},
		{Do: PeerSend},
		{Do: Settle},
	}},
}

func TestRegressions(t *testing.T) {
	for _, r := range regressions {
		t.Run(r.name, func(t *testing.T) {
			for _, backend := range backendtest.Names(t) {
				for _, n := range []int{0, 2, 16} {
					runChecked(t, backend, n, r.ops)
				}
			}
		})
	}
}
