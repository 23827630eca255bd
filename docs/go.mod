module github.com/socknotify/socknotify/docs

go 1.26.0

require (
	github.com/socknotify/socknotify v0.0.0
	github.com/yuin/goldmark v1.8.7
)

require (
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
