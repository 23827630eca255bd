module github.com/socknotify/socknotify/examples/websocket

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.22.1
	github.com/gobwas/ws v1.5.0
	github.com/gorilla/websocket v1.5.3
	github.com/socknotify/socknotify v0.0.0
)

require go.uber.org/goleak v1.3.0 // indirect

require (
	github.com/coder/websocket v1.8.15
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/gobwas/httphead v0.1.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
