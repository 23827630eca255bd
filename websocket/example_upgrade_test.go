package websocket_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/socknotify/socknotify/websocket"
)

// Requests are checked before they become WebSockets.
func ExampleServer_Upgrade() {
	echo := &websocket.Server{OnMessage: func(c *websocket.Conn, kind websocket.Kind, payload []byte) error {
		return c.Write(kind, payload)
	}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("token") != "secret" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		if _, err := echo.Upgrade(w, r); err != nil {
			log.Print(err) // the request has been answered
		}
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(l)

	refused, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	refused.Body.Close()
	fmt.Println(refused.Status)
	client := dial(l.Addr().String(), "/?token=secret") // a small client of these examples
	client.write("hello")
	fmt.Println(client.read())

	client.conn.Close()
	http.DefaultClient.CloseIdleConnections()
	server.Shutdown(context.Background())
	echo.Shutdown(context.Background())
	// Output:
	// 401 Unauthorized
	// hello
}
