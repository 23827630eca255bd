module github.com/socknotify/socknotify/examples/websocket

go 1.26.0

replace github.com/socknotify/socknotify => ../..

require (
	github.com/gobwas/httphead v0.1.0 // indirect
	github.com/gobwas/ws v1.5.0 // indirect
	github.com/socknotify/socknotify v0.0.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
