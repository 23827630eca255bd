module github.com/socknotify/socknotify/server/proxyproto

go 1.26.0

require (
	github.com/pires/go-proxyproto v0.15.0
	github.com/socknotify/socknotify v0.0.0
)

require golang.org/x/sys v0.49.0 // indirect
