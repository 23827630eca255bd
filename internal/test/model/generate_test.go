//go:build unix || windows

package model

import (
	"pgregory.net/rapid"

	"github.com/socknotify/socknotify"
)

// genOps draws a sequence: single operations, and phrases, which are what programs do. Any of a
// phrase's operations may be left out, so a failing phrase shrinks as well.
var genOps = rapid.Custom(func(t *rapid.T) []Op {
	least := rapid.SampledFrom([]int{1, 1, 5, 10, 20, 40, 60}).Draw(t, "least")
	var ops []Op
	for len(ops) < min(least, *stepsFlag) || len(ops) < *stepsFlag && often.Draw(t, "more") {
		if rapid.Bool().Draw(t, "phrase") {
			ops = append(ops, genPhrase(t)...)
		} else {
			ops = append(ops, genOp(t, rapid.SampledFrom(mix).Draw(t, "do"), genPlace(t)))
		}
	}
	return ops
})

var often = rapid.SampledFrom([]bool{false, true, true, true, true, true, true, true, true, true})

// A place is a socket and a port.
type place struct{ sock, port int }

// genPlace prefers few places, so that operations meet.
func genPlace(t *rapid.T) place {
	return place{
		rapid.SampledFrom([]int{0, 0, 0, 0, 1, 1, 1, 2, 3}).Draw(t, "sock"),
		rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1}).Draw(t, "port"),
	}
}

// The phrases.
var phrases = [][]Do{
	// The multi-threaded pattern, with arrivals at each of its moments.
	{Enable, PeerSend, Wait, RecvAll, PeerSend, Wait, Enable, Wait, RecvAll, Enable, PeerSend, Wait},
	{Enable, PeerSend, Wait, RecvAll, PeerSend, Wait, PeerSend, Wait, RecvAll, PeerSend, Wait, Enable, Settle},
	{Enable, PeerSend, Wait, Recv, Enable, Wait, RecvAll, Enable, PeerShutWrite, Wait, Enable, Settle},
	{Enable, PeerSend, Wait, PeerSend, WaitAll, RecvAll, Enable, WaitAll},
	// Sending.
	{Enable, Wait, SendFull, Enable, Wait, PeerRecvAll, Wait, SendFull, Enable, PeerRecvAll, Settle},
	// Levels that go on.
	{Enable, PeerSend, Wait, Wait, WaitAll, Recv, Wait, RecvAll, Wait, PeerSend, Settle},
	// The end.
	{Enable, PeerSend, PeerShutWrite, Wait, RecvAll, Enable, Wait, PeerClose, Settle},
	{Enable, PeerReset, Wait, RecvAll, Enable, Wait, ReadErr, Enable, Settle},
	{Enable, ShutWrite, PeerClose, Wait, Enable, Settle},
	{Enable, PeerUrgent, Wait, RecvAll, Enable, PeerSend, Wait},
	// Removal with something on the way.
	{Enable, PeerSend, Remove, Wait, Enable, Wait, Remove, Settle},
	{Enable, PeerSend, Wait, Disable, PeerSend, Wait, Wait, RecvAll, Enable, Wait},
	{Enable, Remove, Enable, PeerSend, Settle},
	{Enable, PeerSend, Deregister, Wait, Enable, Settle},
	// Numbers that are used again.
	{Enable, PeerSend, DupClose, Open, Enable, OldPeers, Wait, OldPeers, Enable, Settle},
	{Enable, PeerSend, Replace, Wait, Enable, Wait, PeerSend, Settle},
	{Enable, Wait, Close, Open, Disable, Enable, PeerSend, Settle},
	{Enable, Enable, Replace, Enable, PeerSend, Settle},
	{Enable, DupClose, OldPeers, Wait, OldPeers, Wait, DropDup, Wait, Open},
	{Enable, NewPort, Enable, PeerSend, Settle},
	// Strict edges, if the port gets them.
	{NewPort, Enable, PeerSend, Wait, Recv, PeerSend, Wait, RecvAll, PeerSend, Wait, PeerShutWrite, Settle},
	{NewPort, Enable, PeerShutWrite, Wait, SendFull, Wait, PeerRecvAll, PeerClose, Settle},
	{NewPort, Enable, SendFull, PeerShutWrite, Wait, PeerRecvAll, Wait, SendFull, PeerRecvAll, PeerReset, Settle},
}

func genPhrase(t *rapid.T) (ops []Op) {
	do := rapid.SampledFrom(phrases).Draw(t, "phrase")
	at := genPlace(t)
	enable := genEnable(t, at)
	for _, d := range do {
		if !often.Draw(t, "keep") {
			continue
		}
		op := genOp(t, d, at)
		if d == Enable && rapid.IntRange(0, 3).Draw(t, "another") != 3 {
			op.Filter, op.Trigger, op.BySock = enable.Filter, enable.Trigger, enable.BySock
		}
		ops = append(ops, op)
	}
	return ops
}

func genEnable(t *rapid.T, at place) Op {
	return Op{
		Do: Enable, Sock: at.sock, Port: at.port,
		Key:     rapid.SampledFrom([]int{keyKeep, keyKeep, keyKeep, keyKeep, keyFresh, keyOld}).Draw(t, "key"),
		Filter:  socknotify.Events(rapid.SampledFrom([]int{1, 5, 3, 7, 2, 4, 6, 5, 1, 0}).Draw(t, "filter")),
		Trigger: trigger(rapid.SampledFrom([]int{0, 0, 1, 2, 3, 4, 5}).Draw(t, "trigger")),
		Drained: rapid.Bool().Draw(t, "drained"),
		Batch:   rapid.Bool().Draw(t, "batch"),
		BySock:  rapid.Bool().Draw(t, "by sock"),
	}
}

func genOp(t *rapid.T, do Do, at place) Op {
	op := Op{Do: do, Sock: at.sock}
	switch do {
	case Enable:
		return genEnable(t, at)
	case Disable, Remove:
		op.Port = at.port
		op.Batch = rapid.Bool().Draw(t, "batch")
		op.BySock = rapid.Bool().Draw(t, "by sock")
	case NewPort:
		op.Port = at.port
		op.N = rapid.IntRange(0, 1).Draw(t, "strict")
	case Deregister:
		op.Port = at.port
		op.BySock = rapid.Bool().Draw(t, "by sock")
	case Wait, WaitAll, Post, NotFound:
		op.Port = at.port
		op.N = rapid.IntRange(0, maxN-1).Draw(t, "n")
	case PeerSend, OldPeers, Open, Replace:
		op.N = rapid.IntRange(0, maxN-1).Draw(t, "n")
	}
	return op
}

// mix is what single operations are drawn from.
var mix = func() (m []Do) {
	weights := map[Do]int{Enable: 24, Wait: 16, WaitAll: 4, PeerSend: 14, RecvAll: 12, Recv: 5, SendFull: 6,
		PeerRecvAll: 4, Post: 4, Close: 3, DupClose: 3, Open: 8, Replace: 4, Disable: 4, Remove: 5, Settle: 3}
	for d := Enable; d < doCount; d++ {
		for range max(1, weights[d]) {
			m = append(m, d)
		}
	}
	return m
}()
