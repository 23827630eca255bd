package main

import (
	"context"
	"log"
	"net/http"
	"time"
)

// A line of the log says how long a request took.
type line struct {
	what  string
	began time.Time
	waits bool // the handler has returned, and the request waits: its then writes the line
}

type lineKey struct{}

// lineOf returns the line of a request.
func lineOf(r *http.Request) *line { return r.Context().Value(lineKey{}).(*line) }

func (l *line) write() { log.Printf("%s took %v", l.what, time.Since(l.began)) }

// logged is a middleware that logs requests. A line that it wrote when its handler has returned
// would come while the request still waits.
func logged(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l := &line{what: r.Method + " " + r.URL.Path, began: time.Now()}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), lineKey{}, l)))
		if !l.waits {
			l.write()
		}
	})
}
