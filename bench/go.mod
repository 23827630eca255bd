module github.com/socknotify/socknotify/bench

go 1.26.0

require (
	github.com/cloudwego/netpoll v0.7.2
	github.com/coder/websocket v1.8.15
	github.com/gobwas/ws v1.5.0
	github.com/socknotify/socknotify v0.0.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/bytedance/gopkg v0.1.1 // indirect
	github.com/cloudwego/gopkg v0.1.4 // indirect
	github.com/gobwas/httphead v0.1.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)
