package server_test

import (
	"runtime"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/server"
)

// ends runs f on a goroutine, which it may leave by a panic or runtime.Goexit.
func ends(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recover() }()
		f()
	}()
	<-done
}

// After an OnStart that has panicked or called Goexit, the server is as before.
func TestOnStartFails(t *testing.T) {
	before := handles.List()
	for name, fail := range map[string]func(){"panic": func() { panic("OnStart") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			fails := true
			s := &srv{Handler: &handler{t: t}, Shards: 2, Workers: 2, OnStart: func([]*socknotify.Port[*server.Key]) {
				if fails {
					fail()
				}
			}}
			l := listen(t)
			ends(func() { s.Serve(l) })
			if st := s.Stats(); st != (server.Stats{}) {
				t.Errorf("%+v", st)
			}
			fails = false
			echoes(t, dial(t, start(t, s)), "hello")
		})
		t.Run("packets "+name, func(t *testing.T) {
			fails := true
			s := &server.PacketServer{
				Handler: echoPackets,
				OnStart: func(*socknotify.Port[*server.PacketConn]) {
					if fails {
						fail()
					}
				},
			}
			ends(func() { s.ListenAndServe("udp", "127.0.0.1:0") })
			if st := s.Stats(); st != (server.PacketStats{}) {
				t.Errorf("%+v", st)
			}
			fails = false
			echoes(t, packets(t, s), "hello")
		})
	}
	handles.Settle(t, before, soon)
}
