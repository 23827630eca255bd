package interop

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
	"github.com/socknotify/socknotify/sse"
)

// A client of package sse behind nghttpx, which speaks HTTP/2 with the server, has its answer before the first event, and
// the server notices its end.
func TestEventsBehindNghttpx(t *testing.T) {
	for _, ours := range []bool{false, true} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprintf("%t, HTTP/%d", ours, version), func(t *testing.T) {
				gone := make(chan error, 1)
				events := &sse.Server{Retry: -1, Heartbeat: -1, OnClose: func(_ *sse.Conn, err error) { gone <- err }}
				hs := &http.Server{Handler: events, Protocols: new(http.Protocols)}
				hs.Protocols.SetUnencryptedHTTP2(true)
				l := listen(t)
				serve, end := hs.Serve, hs.Close
				if ours {
					server := &park.HTTPServer{HTTP2: new(http2.Server), Linger: -1, Server: hs}
					serve, end = server.Serve, server.Close
				}
				served := make(chan error, 1)
				go func() { served <- serve(l) }()
				t.Cleanup(func() { end(); <-served })
				tr := &http.Transport{Protocols: new(http.Protocols)}
				tr.Protocols.SetHTTP1(version == 1)
				tr.Protocols.SetUnencryptedHTTP2(version == 2)
				t.Cleanup(tr.CloseIdleConnections)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, "GET", "http://"+nghttpx(t, l.Addr().String(), false), nil)
				must(t, err)
				answer, err := tr.RoundTrip(r)
				must(t, err)
				defer answer.Body.Close()
				if answer.ProtoMajor != version || answer.StatusCode != 200 || !strings.Contains(answer.Header.Get("Via"), "nghttpx") {
					t.Errorf("%s %s %v", answer.Proto, answer.Status, answer.Header)
				}
				event, err := sse.Prepare(sse.Event{Data: "first"})
				must(t, err)
				await.Until(t, "the client is there", func() bool { return events.Broadcast(event) == 1 })
				in := bufio.NewReader(answer.Body)
				for line := ""; line != "data: first\n"; {
					line, err = in.ReadString('\n')
					must(t, err)
				}
				cancel()
				await.Receive(t, "OnClose", gone) // with what nghttpx has reset the stream with
				must(t, events.Shutdown(context.Background()))
			})
		}
	}
}
