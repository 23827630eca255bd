// Command restart is a server that is replaced without refusing a connection: on SIGHUP it starts its program again, which
// may be a newer version, hands its sockets over, and ends when it has served what it has accepted. SIGINT and SIGTERM end
// it. It answers each line with its process id, on a Unix socket and on four TCP sockets of one address (SO_REUSEPORT,
// where the system has it), and each request of HTTP likewise.
//
//	restart -tcp 127.0.0.1:8080 -unix /tmp/restart.sock -http 127.0.0.1:8081
//	kill -HUP the-process-id
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/server/handover"
)

type conn = *server.Conn[struct{}]

// A pid is the handler.
type pid struct{}

func (pid) Open(c conn) error { return nil }

func (pid) Data(c conn, buf []byte) error {
	for {
		line, err := c.Line(1000)
		if err != nil {
			return err
		}
		if _, err := c.Write(fmt.Appendf(nil, "%d %s\n", os.Getpid(), line)); err != nil {
			return err
		}
	}
}

func (pid) Close(c conn, cause error) {}

func main() {
	tcp := flag.String("tcp", "127.0.0.1:0", "the TCP `address`")
	unix := flag.String("unix", "", "the `path` of the Unix socket; none if empty")
	web := flag.String("http", "", "the `address` for HTTP; none if empty")
	flag.Parse()
	if err := run(*tcp, *unix, *web); err != nil {
		log.Fatal(err)
	}
}

func run(tcp, unix, web string) error {
	set, err := handover.Inherit()
	if err != nil {
		return err
	}
	listeners, err := listen(set, tcp, unix)
	if err != nil {
		return err
	}
	s := &server.Server[struct{}]{Handler: pid{}}
	failed := make(chan error, len(listeners)+1)
	for _, l := range listeners {
		go func() { failed <- s.Serve(l) }()
	}
	h := &park.HTTPServer{Server: &http.Server{Handler: http.HandlerFunc(answer)}}
	if web != "" {
		l, err := set.Listen("http", "tcp", web)
		if err != nil {
			return err
		}
		go func() { failed <- h.Serve(l) }()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, os.Interrupt, syscall.SIGTERM)
	if err := set.Ready(); err != nil { // the predecessor ends
		log.Print(err)
	}
	log.Println("listening on", listeners[0].Addr())
	for {
		select {
		case err := <-failed:
			return err
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				if err := restart(set); err != nil {
					log.Print("not restarted: ", err)
					continue
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			ended := make(chan error)
			go func() { ended <- h.Shutdown(ctx) }()
			return errors.Join(s.Shutdown(ctx), <-ended)
		}
	}
}

// answer is the handler for HTTP.
func answer(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, os.Getpid(), r.URL.Path) }

// listen returns the listeners of the predecessor or of systemd, or new ones.
func listen(set *handover.Set, tcp, unix string) ([]net.Listener, error) {
	address, err := netip.ParseAddrPort(tcp)
	if err != nil {
		return nil, err
	}
	listeners, err := set.Group("tcp", address, 4)
	if errors.Is(err, errors.ErrUnsupported) { // no SO_REUSEPORT
		var l net.Listener
		l, err = set.Listen("tcp", "tcp", tcp)
		listeners = []net.Listener{l}
	}
	if err != nil || unix == "" {
		return listeners, err
	}
	l, err := set.Listen("unix", "unix", unix)
	return append(listeners, l), err
}

// restart starts the program again, with the same arguments, and returns when that is ready.
func restart(set *handover.Set) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return set.Start(ctx, cmd)
}
