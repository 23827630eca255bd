// Command longpoll is a queue of jobs. Workers ask for the next job, and their requests wait
// without a goroutine until there is one.
package main

import (
	"context"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"github.com/socknotify/socknotify/park"
)

// A queue has jobs, or workers that wait for one.
type queue struct {
	mu      sync.Mutex
	jobs    []string
	workers []*park.Suspended          // they wait
	given   map[*park.Suspended]string // jobs that match has given, until they are answered
}

func newQueue() *queue { return &queue{given: make(map[*park.Suspended]string)} }

// match gives jobs to workers, as long as there are both. A worker whose request has ended for
// another reason is about to leave.
func (q *queue) match() {
	for len(q.jobs) > 0 && len(q.workers) > 0 {
		s := q.workers[0]
		q.workers = q.workers[1:]
		if s.Resume() {
			q.given[s], q.jobs = q.jobs[0], q.jobs[1:]
		}
	}
}

func (q *queue) put(job string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs = append(q.jobs, job)
	q.match()
}

func (q *queue) enter(s *park.Suspended) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.workers = append(q.workers, s)
	q.match()
}

func (q *queue) leave(s *park.Suspended) (job string, has bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.workers = slices.DeleteFunc(q.workers, func(other *park.Suspended) bool { return other == s })
	job, has = q.given[s]
	delete(q.given, s)
	return job, has
}

// next answers with a job, or with 204 after half a minute and when the server ends.
func (q *queue) next(w http.ResponseWriter, r *http.Request) {
	line := lineOf(r) // then gets no value of middleware
	err := park.SuspendWith(w, r, park.SuspendOptions{Timeout: 30 * time.Second}, q.enter,
		func(w http.ResponseWriter, r *http.Request, s *park.Suspended) {
			defer line.write()
			if job, has := q.leave(s); !has {
				w.WriteHeader(http.StatusNoContent)
			} else if _, err := io.WriteString(w, job); err != nil || r.Context().Err() != nil {
				q.put(job) // the worker has gone
			}
		})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	line.waits = true
}

func (q *queue) add(w http.ResponseWriter, r *http.Request) {
	job, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1000))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	q.put(string(job))
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	q := newQueue()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /jobs/next", q.next)
	mux.HandleFunc("POST /jobs", q.add)
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt)
	server := park.HTTPServer{Server: &http.Server{Handler: logged(mux)}}
	context.AfterFunc(ctx, func() { server.Shutdown(context.Background()) }) // answers those that wait
	log.Printf("curl http://%v/jobs/next", l.Addr())
	log.Print(server.Serve(l))
}
