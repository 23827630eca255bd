package http2

import (
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// All cases of h2spec pass, if it is on PATH. A case about too many streams needs a handler that does not return; the
// others need answers with a body.
func TestH2spec(t *testing.T) {
	h2spec, err := exec.LookPath("h2spec")
	if err != nil {
		t.Skip("h2spec is not installed: ", err)
	}
	const tooMany = "http2/5.1.2"
	run := func(t *testing.T, secure bool, h http.HandlerFunc, which ...string) string {
		_, address, _ := strings.Cut(serve(t, &Server{Server: handler(h)}, secure), "://")
		host, port, _ := strings.Cut(address, ":")
		// A HEADERS frame of five such fields is larger than the frames that are received.
		args := []string{"-h", host, "-p", port, "-o", "10", "--max-header-length", "20000"}
		if secure {
			args = append(args, "-t", "-k")
		}
		out, err := exec.CommandContext(t.Context(), h2spec, append(args, which...)...).CombinedOutput()
		text := string(out)
		if !regexp.MustCompile(`\d+ tests, \d+ passed, \d+ skipped, \d+ failed`).MatchString(text) {
			t.Fatalf("%v\n%s", err, text)
		}
		return text
	}
	both(t, func(t *testing.T, secure bool) {
		text := run(t, secure, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			io.WriteString(w, "answer")
		})
		_, failures, _ := strings.Cut(text, "Failures:")
		failed := strings.Count(failures, "×")
		if strings.Contains(failures, "advertised concurrent stream limit") {
			failed-- // it passes below
		}
		t.Log(text[strings.LastIndex(text, "\nFinished")+1:])
		if failed != 0 {
			t.Error(failures)
		}
		text = run(t, secure, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, tooMany)
		if !strings.Contains(text, "1 passed, 0 skipped, 0 failed") {
			t.Error(text)
		}
	})
}
