package http2

import (
	"bytes"
	"errors"
	"mime/multipart"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The temporary files of a form are removed when its handler ends, in whatever way.
func TestFormFiles(t *testing.T) {
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	part, err := m.CreateFormFile("file", "name")
	must(t, err)
	part.Write(make([]byte, 100))
	must(t, m.Close())
	servers(t, func(t *testing.T, start func(hs *http.Server) string) {
		for _, how := range []string{"return", "flush", "panic", "abort", "Goexit", "reset",
			"write deadline", "read deadline", "HTTP/1.1"} {
			names, reset := make(chan string, 1), make(chan bool)
			hs := handler(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if f := r.MultipartForm; f == nil || len(f.File["file"]) != 1 {
						names <- "no file"
					} else if f, err := f.File["file"][0].Open(); err != nil {
						names <- err.Error()
					} else {
						defer f.Close()
						if f, ok := f.(*os.File); ok {
							names <- f.Name()
						} else {
							names <- "in memory"
						}
					}
				}()
				if err := r.ParseMultipartForm(1); err != nil {
					t.Error(err)
				}
				switch how {
				case "flush":
					w.(http.Flusher).Flush()
				case "panic":
					panic("x")
				case "abort":
					panic(http.ErrAbortHandler)
				case "Goexit":
					runtime.Goexit()
				case "reset":
					close(reset)
					<-r.Context().Done()
				case "write deadline":
					http.NewResponseController(w).SetWriteDeadline(time.Now())
					<-r.Context().Done()
				case "read deadline":
					http.NewResponseController(w).SetReadDeadline(time.Now())
				}
			})
			url := start(hs)
			var name string
			if how == "HTTP/1.1" {
				body := bytes.NewReader(form.Bytes())
				resp, err := client1(t).Post(url, m.FormDataContentType(), body)
				must(t, err)
				resp.Body.Close()
				name = <-names
			} else {
				p := dial(t, url)
				p.request(1, false, "content-type", m.FormDataContentType())
				p.WriteData(1, how != "read deadline", form.Bytes())
				must(t, p.send())
				if how == "reset" {
					<-reset
					departures[0].depart(p)
				}
				name = <-names
			}
			if !strings.Contains(name, "multipart-") {
				t.Errorf("%s: %s, want a file", how, name)
			}
			until(t, how+": the file is removed", func() bool {
				_, err := os.Stat(name)
				return errors.Is(err, os.ErrNotExist)
			})
		}
	})
}
