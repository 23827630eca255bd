package websocket_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/websocket"
)

// A chat: each message goes to everyone. Connections that are silent cost neither goroutines nor buffers.
func ExampleServer() {
	var chat *websocket.Server
	chat = &websocket.Server{
		OnOpen: func(c *websocket.Conn, r *http.Request) error {
			c.Value = r.URL.Query().Get("name")
			return c.Write(websocket.Text, []byte("welcome"))
		},
		OnMessage: func(c *websocket.Conn, kind websocket.Kind, payload []byte) error {
			m, err := chat.Prepare(kind, fmt.Appendf(nil, "%v: %s", c.Value, payload))
			if err != nil {
				return err
			}
			chat.Broadcast(m)
			return nil
		},
		SlowPolicy: websocket.SlowClose, // who reads too slowly must connect again
	}
	mux := http.NewServeMux()
	mux.Handle("/chat", chat)
	server := park.HTTPServer{Server: &http.Server{Handler: mux}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(l)

	// The package has only servers: dial is a small client of this example.
	ann, ben := dial(l.Addr().String(), "/chat?name=Ann"), dial(l.Addr().String(), "/chat?name=Ben")
	fmt.Println(ann.read(), ben.read())
	ann.write("hello")
	fmt.Println(ann.read())
	fmt.Println(ben.read())

	ann.conn.Close()
	ben.conn.Close()
	server.Shutdown(context.Background()) // no new connections
	chat.Shutdown(context.Background())   // and the end of those that there are
	// Output:
	// welcome welcome
	// Ann: hello
	// Ann: hello
}
