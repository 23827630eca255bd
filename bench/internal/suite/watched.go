package suite

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/socknotify/socknotify/bench/internal/contend"
	"github.com/socknotify/socknotify/bench/internal/param"
)

// observers are ways to observe a server: what is asked for once in a window, with a page where it
// begins with PagePath. An open page sends the request of app.js.
var observers = []struct{ name, ask string }{
	{"unobserved", ""},
	{"page-mounted", contend.PagePath},
	{"page-open", contend.PagePath + "view?port=echo&q=&state=&sort=socket&order=asc&offset=0&limit=50&after=0"},
	{"scraped", contend.ScrapePath},
}

// watchedSets are as fast as answers come; at a moderate rate, at which the system calls of an
// observer weigh more; and with next to nothing to do, where each observation wakes the server. At
// the moderate rate twenty requests are sent at a time: with single ones, the number of wake-ups of
// a server varies by more than an observer adds.
func watchedSets() []Set {
	return []Set{
		{param.Params{Connections: 100, Size: 64, Cores: 1}, 1},
		{param.Params{Connections: 100, Size: 64, Burst: 20, Rate: 2000, Cores: 1}, 1},
		{param.Params{Connections: 100, Size: 64, Burst: 20, Rate: 2000, Cores: 2}, 1},
		{param.Params{Connections: 100, Size: 64, Rate: 50, Cores: 2}, 1},
	}
}

// watched measures a server that is observed. Its system calls are counted in each sample.
func watched(ctx context.Context, e *Env, c *Contender, p param.Params, _ bool) (o param.Outcome, err error) {
	s, err := e.start(ctx, c, p)
	if err != nil {
		return o, err
	}
	defer s.stop()
	var web string
	s.addr, web, _ = strings.Cut(s.addr, " ")
	if err := s.load(ctx, p); err != nil {
		return o, err
	}
	if strings.HasPrefix(c.observer, contend.PagePath) {
		if err := get(ctx, web, contend.MountPath); err != nil {
			return o, err
		}
	}
	ask := ""
	if c.observer != contend.PagePath { // a page that is only mounted
		ask = c.observer
	}
	if ask != "" { // an open page has asked for the addresses of all rows, which are valid for a minute
		if err := get(ctx, web, ask); err != nil {
			return o, err
		}
	}
	if err := s.warm(ctx, p); err != nil {
		return o, err
	}
	asked := make(chan error, 1)
	time.AfterFunc(e.Window/2, func() {
		if ask == "" {
			asked <- nil
			return
		}
		asked <- get(ctx, web, ask)
	})
	if o, err = s.measure(ctx, e.Window, true); err != nil {
		return o, err
	}
	if err := <-asked; err != nil {
		return o, err
	}
	return o, s.running()
}

func get(ctx context.Context, addr, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return err
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, answer.Status)
	}
	return err
}
