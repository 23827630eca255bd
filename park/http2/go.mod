module github.com/socknotify/socknotify/park/http2

go 1.26.0

require (
	github.com/socknotify/socknotify v0.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/net v0.62.0
	pgregory.net/rapid v1.3.0
)

require (
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
