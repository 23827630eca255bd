package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestLines(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- serve(ctx, l, backend) }()

		for _, c := range []struct {
			name, send, want string
		}{
			{"store", "SET a one two\nGET a\nGET b\nQUIT\n", "OK\none two\nNONE\nBYE\n"},
			{"carriage returns", "SET c three\r\nGET c\r\nQUIT\r\n", "OK\nthree\nBYE\n"},
			{"mistakes", "\nHELLO\nWAIT long\nQUIT\n", "ERROR what?\nERROR what?\nERROR what duration?\nBYE\n"},
			{"wait", "WAIT 10ms\nSET d 4\nWAIT 1ms\nGET d\nQUIT\n", "OK\nOK\nOK\n4\nBYE\n"},
			{"end of the stream", "SET e 5\nWAIT 1ms\nGET e\nhalf a line", "OK\nOK\n5\n"},
		} {
			for _, pieces := range []int{1, 3, len(c.send)} {
				t.Run(fmt.Sprint(c.name, " in ", pieces), func(t *testing.T) {
					conn, err := net.Dial("tcp", l.Addr().String())
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					conn.SetDeadline(time.Now().Add(2 * time.Minute))
					size := len(c.send)/pieces + 1
					for rest := c.send; rest != ""; {
						k := min(size, len(rest))
						if _, err := io.WriteString(conn, rest[:k]); err != nil {
							t.Fatal(err)
						}
						rest = rest[k:]
					}
					conn.(*net.TCPConn).CloseWrite()
					got, err := io.ReadAll(conn)
					if err != nil || string(got) != c.want {
						t.Errorf("%q, %v; want %q", got, err, c.want)
					}
				})
			}
		}
		long, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(long, strings.Repeat("x", maxLine+1))
		if n, err := long.Read(make([]byte, 1)); err == nil {
			t.Errorf("a long line is answered with %d bytes", n)
		}
		long.Close()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
