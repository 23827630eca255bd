package debug_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/internal/debugdata"
)

// Every request receives a well-formed answer that respects the limits of the request.
func FuzzQuery(f *testing.F) {
	views := []string{"ports", "view", "status", "history", "registrations", "trace", "process", "index.html"}
	for _, q := range []string{
		"", "port=first", "port=second&q=key+1", "q=%F0%9F%98%80&state=enabled", "sort=remote&order=desc&offset=3&limit=1000",
		"after=18446744073709551615", "after=-1", "after=0", "socket=0&kind=notified", "socket=18446744073709551616", "offset=1073741824",
		"limit=0", "a=b;c=d", "%", "q=" + "a+a+a+a+a+a+a+a+a+a+a+a+a+a+a+a+a", "port=first&port=second", "q=\x00\n\xff",
	} {
		for i, name := range views {
			f.Add(uint8(i), "/some/where/"+name, q, q != "", i%2 == 0)
		}
	}
	f.Add(uint8(7), "/../..//page/../app.js", "", true, false)
	p, other := newPort[string](f), newPort[int](f)
	s := newUDP(f)
	notify(f, p, s, "key 1")
	for range 5 {
		enable(f, p, newUDP(f), "key 2\xff", socknotify.EventIn)
	}
	pages := []*debug.Handler{debug.New(debug.Port("first", p)), debug.New(debug.Port("first", p), debug.Port("second", other))}
	for _, page := range pages {
		f.Cleanup(page.Close)
	}
	f.Fuzz(func(t *testing.T, view uint8, place, query string, one, sse bool) {
		if int(view) < len(views) {
			place = "/" + views[view]
		}
		page := pages[1]
		if one {
			page = pages[0]
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if path.Base(place) == "trace" {
			cancel() // the stream does not end by itself
		}
		r := request("GET", "/").WithContext(ctx)
		r.URL = &url.URL{Path: place, RawQuery: query}
		if sse {
			r.Header.Set("Accept", "text/event-stream")
		}
		w := answer(page, r)
		body := w.Body.Bytes()
		switch w.Code {
		case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestURITooLong:
			if fail := decoded[debugdata.Failure](t, body); fail.Error == "" || len(fail.Error) > 40_000 {
				t.Errorf("%d bytes of an error", len(fail.Error))
			}
			return
		case http.StatusOK, http.StatusMovedPermanently:
		default:
			t.Fatalf("%s?%s: %d", place, query, w.Code)
		}
		asked := r.URL.Query()
		rows := func(r *debugdata.Registrations) {
			limit := 50
			json.Unmarshal([]byte(asked.Get("limit")), &limit)
			if r.Total > 6 || r.Matched > r.Total || len(r.Rows) > min(limit, r.Matched) {
				t.Errorf("%s: %d rows, %d of %d", query, len(r.Rows), r.Matched, r.Total)
			}
		}
		samples := func(h *debugdata.History) {
			var after uint64
			for i, s := range h.Samples {
				if json.Unmarshal([]byte(asked.Get("after")), &after) == nil && s.Number <= after || i > 0 && s.Number != h.Samples[i-1].Number+1 {
					t.Errorf("%s: sample %d", query, s.Number)
				}
			}
		}
		switch place {
		case "/ports":
			decoded[debugdata.Ports](t, body)
		case "/view":
			l := decoded[debugdata.View](t, body)
			rows(&l.Registrations)
			samples(&l.History)
		case "/status":
			decoded[debugdata.Status](t, body)
		case "/history":
			h := decoded[debugdata.History](t, body)
			samples(&h)
		case "/process":
			decoded[debugdata.Process](t, body)
		case "/registrations":
			r := decoded[debugdata.Registrations](t, body)
			rows(&r)
		case "/trace":
			if sse != bytes.HasPrefix(body, []byte("retry: ")) {
				t.Errorf("%q", body)
			}
		}
	})
}

func decoded[V any](t testing.TB, b []byte) (v V) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %q", err, b)
	}
	return v
}
