package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/freeport"
)

// symfonyEnv has the file that loads symfony/mercure, if it is not that of Debian's package
// php-symfony-mercure.
const symfonyEnv = "SYMFONY_MERCURE_AUTOLOAD"

// The clients of Symfony publish and subscribe, and go on after a hub that was killed.
func TestMercureSymfony(t *testing.T) {
	php, err := exec.LookPath("php")
	if err != nil {
		t.Skip("PHP is not installed: ", err)
	}
	const key = "a secret of 32 bytes, for a test"
	flags, _ := mercureFlags(t)
	addr := freeport.Addrs(t, 1)[0]
	hub := &member{url: "http://" + addr, args: append(flags, "--addr", addr, "--name", "one",
		"--store", t.TempDir(), "--mercure-anonymous", "--mercure-subscriptions", "--heartbeat", "1s")}
	ready := func() {
		hub.start(t)
		until(t, "the hub is ready", func() bool {
			code, _ := ask(t, "GET", hub.url+"/readyz", "")
			return code == http.StatusOK
		})
	}
	ready()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	autoload := cmp.Or(os.Getenv(symfonyEnv), "Symfony/Component/Mercure/autoload.php")
	c := exec.CommandContext(ctx, php, "testdata/mercure.php", autoload,
		hub.url+"/.well-known/mercure", key)
	var wrong bytes.Buffer
	c.Stderr = &wrong
	stdin, err := c.StdinPipe()
	must(t, err)
	stdout, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		t.Log(lines.Text())
		if lines.Text() == "restart" {
			hub.kill()
			ready()
			io.WriteString(stdin, "\n")
		}
	}
	err = c.Wait() // after all of the output was read
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 77 {
		t.Skip("symfony/mercure is not installed: ", strings.TrimSpace(wrong.String()))
	}
	if err != nil || wrong.Len() > 0 {
		t.Fatalf("%v: %s", err, wrong.String())
	}
}
