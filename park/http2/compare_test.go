package http2

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// answer is the handler of TestCompare.
func answer(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	switch r.URL.Path {
	case "/request":
		b, err := io.ReadAll(r.Body)
		var names []string
		for name := range r.Header {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintln(w, r.Method, r.URL, r.RequestURI, r.Host, r.Proto, r.ContentLength, len(b), err, r.Trailer,
			r.TLS != nil)
		for _, name := range names {
			fmt.Fprintf(w, "%s: %q\n", name, r.Header[name])
		}
		_, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		fmt.Fprintln(w, ok, r.Context().Value(http.ServerContextKey) != nil)
	case "/status":
		var status int
		fmt.Sscan(r.URL.RawQuery, &status)
		w.WriteHeader(status)
		_, err := io.WriteString(w, "body")
		h.Set("Late", fmt.Sprint(err))
	case "/large":
		w.Write(make([]byte, 100_000))
	case "/flush":
		io.WriteString(w, "<html>")
		w.(http.Flusher).Flush()
		io.WriteString(w, "b")
	case "/headers":
		h.Set("Connection", "keep-alive")
		h["Date"] = nil
		h.Set("Bad-Value", "a\nb")
		h.Add("Set-Cookie", "a=b")
		h.Add("Set-Cookie", "c=d")
		h.Set("Content-Encoding", "x")
		io.WriteString(w, "body")
	case "/trailers":
		h.Set("Trailer", "A, B, Content-Length")
		io.WriteString(w, "body")
		h.Set("A", "1")
		h.Set(http.TrailerPrefix+"C", "3")
	case "/nothing":
	case "/redirect":
		http.Redirect(w, r, "/nothing", http.StatusFound)
	case "/type":
		h["Content-Type"] = nil
		io.WriteString(w, "<html>")
	}
}

// The answers equal those of net/http's server.
func TestCompare(t *testing.T) {
	ours := serve(t, &Server{Server: handler(answer)}, false)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	hs := handler(answer)
	hs.Protocols = new(http.Protocols)
	hs.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error)
	go func() { served <- hs.Serve(ln) }()
	defer func() {
		hs.Close()
		<-served
	}()
	theirs := "http://" + ln.Addr().String()
	c := client(t)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ask := func(url, method, path, body string, header http.Header) string {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		var in io.Reader
		if body != "" {
			in = strings.NewReader(body)
		}
		req, err := http.NewRequestWithContext(ctx, method, url+path, in)
		must(t, err)
		req.Header = header.Clone()
		req.Host = "host.example"
		resp, err := c.Do(req)
		if err != nil {
			return "error"
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if date := resp.Header.Get("Date"); date != "" {
			if _, err := time.Parse(http.TimeFormat, date); err != nil {
				t.Error(err)
			}
			resp.Header.Set("Date", "now")
		}
		return fmt.Sprintf("%s %d %v %v\n%q %v", resp.Status, resp.ContentLength, resp.Header, resp.Trailer, b, err)
	}
	headers := []http.Header{{}, {"Cookie": {"a=b; c=d"}, "A": {"1", "2"}, "Te": {"trailers"}}}
	paths := []string{"/request?a=b", "/request/%2f", "/large", "/flush", "/headers", "/trailers", "/nothing", "/redirect",
		"/type", "/status?200", "/status?204", "/status?304", "/status?404", "/status?500", "/status?999"}
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "OPTIONS", "OTHER"} {
			for _, body := range []string{"", "x", strings.Repeat("y", 70_000)} {
				for _, header := range headers {
					if body != "" && method == "HEAD" {
						continue
					}
					if a, b := ask(ours, method, path, body, header), ask(theirs, method, path, body, header); a != b {
						t.Errorf("%s %s with a body of %d bytes:\n%.800s\nnet/http:\n%.800s", method, path, len(body), a, b)
					}
				}
			}
		}
	}
}

// curl and nghttp2's h2load get their answers, if they are installed.
func TestOtherClients(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"curl", []string{"--http2", "-k", "-s", "-S", "-w", " %{http_version} %{http_code}", "-d", "body"}, "body 2 200"},
		{"h2load", []string{"-n", "2000", "-c", "10", "-m", "20"}, "2000 succeeded, 0 failed, 0 errored, 0 timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.name); err != nil {
				t.Skip(c.name, " is not installed: ", err)
			}
			both(t, func(t *testing.T, secure bool) {
				url := serve(t, &Server{Server: handler(echo)}, secure)
				args := append(slices.Clone(c.args), url)
				if c.name == "curl" && !secure {
					args[0] = "--http2-prior-knowledge"
				}
				out, err := exec.CommandContext(t.Context(), c.name, args...).CombinedOutput()
				if err != nil || !strings.Contains(string(out), c.want) {
					t.Errorf("%v: %v\n%s", args, err, out)
				}
			})
		})
	}
}
