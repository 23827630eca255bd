package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// A Report counts what a history has.
type Report struct {
	Acknowledged int // events
	Unanswered   int // requests to publish without an answer
	Unavailable  int // those that were answered with 503
	Clients      int
	Delivered    int // acknowledged events that have come, of all clients
	Told         int // those that are in a gap
	Gaps         int
	Twice        int // events that were tried more than once, and are stored more than once
	Faults       int
}

// maxFaults bounds the faults that are described.
const maxFaults = 40

// A checker has what was read of a history.
type checker struct {
	Report
	report     func(string)
	eras       Eras
	begin, end string
	clients    []*client // by their numbers, from 1
	tries      map[string]*published
	order      []*published // acknowledged, as the answers came
	cut        map[int]int64
}

// A client has what one got.
type client struct {
	Client
	events []Event
	gaps   []Gap
	spans  []span               // of the gaps
	got    map[Place]*published // of the events
}

// published is an event, and what its publisher was answered.
type published struct {
	topic, data string
	began       int64 // the first request
	tries       int
	id          string // that was acknowledged, or empty
	place       Place
	seen        bool // a client has got it, or was told of it
	missing     int  // clients that should have
}

// Check reads a history, and reports what is wrong in it. What must hold is that each event that was
// acknowledged comes to each client that wants it once, and those of a filter in order, or is in one
// gap, and does not come then; that an event is what was published, and where the answer to its
// publisher says; and that a node that is cut off from all others acknowledges nothing.
func Check(in io.Reader, report func(fault string)) (Report, error) {
	c := &checker{report: report, tries: make(map[string]*published), cut: make(map[int]int64)}
	lines := json.NewDecoder(in)
	for {
		var r Record
		err := lines.Decode(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c.Report, err
		}
		c.take(&r)
	}
	if c.begin == "" || c.end == "" {
		return c.Report, errors.New("the history has no begin or no end")
	}
	if err := c.check(); err != nil {
		return c.Report, err
	}
	if c.Acknowledged == 0 || c.Delivered == 0 {
		return c.Report, errors.New("nothing was delivered")
	}
	return c.Report, nil
}

// fault notes a fault.
func (c *checker) fault(format string, a ...any) {
	if c.Faults++; c.Faults <= maxFaults {
		c.report(fmt.Sprintf(format, a...))
	}
}

// take notes a record.
func (c *checker) take(r *Record) {
	switch {
	case r.Client != nil:
		c.clients = append(c.clients, &client{Client: *r.Client})
		if r.Who != len(c.clients) {
			c.fault("client %d is number %d", len(c.clients), r.Who)
		}
	case r.Who < 0 || r.Who > len(c.clients) || r.Who == 0 && (r.Event != nil || r.Gap != nil):
		c.fault("a record of a client %d that has not begun", r.Who)
	case r.Event != nil:
		of := c.clients[r.Who-1]
		of.events = append(of.events, *r.Event)
		p := c.tries[r.Event.Data]
		if p == nil {
			// The answer to its publisher may come later. Then it has begun before.
			p = &published{topic: r.Event.Topic, data: r.Event.Data, began: r.At}
			c.tries[r.Event.Data] = p
		} else if p.tries > 0 && r.At < p.began {
			c.fault("%q has come before it was published", r.Event.Data)
		}
	case r.Gap != nil:
		of := c.clients[r.Who-1]
		of.gaps = append(of.gaps, *r.Gap)
		c.Gaps++
	case r.Wrong != "":
		c.fault("client %d: %s", r.Who, r.Wrong)
	case r.Try != nil:
		c.takeTry(r.Try)
	case r.Era != nil:
		c.eras = append(c.eras, *r.Era)
	case r.Begin != "":
		c.begin = r.Begin
	case r.End != "":
		c.end = r.End
	case r.Cut != nil && r.Cut.Off:
		c.cut[r.Cut.Node] = r.At
	case r.Cut != nil:
		delete(c.cut, r.Cut.Node)
	}
}

// takeTry notes a request to publish, when it was answered.
func (c *checker) takeTry(t *Try) {
	p := c.tries[t.Data]
	if p == nil {
		p = &published{topic: t.Topic, data: t.Data, began: t.Began}
		c.tries[t.Data] = p
	}
	switch {
	case p.tries == 0 && p.began < t.Began:
		c.fault("%q has come before it was published", t.Data)
	case p.topic != t.Topic:
		c.fault("%q of %s has come as one of %s", t.Data, t.Topic, p.topic)
	}
	if p.tries == 0 {
		p.began = t.Began // it may be the time of a client's event
	}
	p.tries++
	switch {
	case t.Status == 0:
		c.Unanswered++
		return
	case t.Status == http.StatusServiceUnavailable:
		c.Unavailable++
		return
	case t.Status != http.StatusOK:
		c.fault("publishing %q is answered with %d", t.Data, t.Status)
		return
	}
	// A later request may be answered with the id that the first one has got before the cut.
	if since, off := c.cut[t.Node]; off && t.N == 1 && t.Began > since {
		c.fault("node %d has acknowledged %q, and is cut off", t.Node, t.Data)
	}
	if p.id != "" && p.id != t.ID {
		c.fault("%q was acknowledged as %s and %s", t.Data, p.id, t.ID)
		return
	}
	if p.id == "" {
		p.id = t.ID
		c.order = append(c.order, p)
	}
}

// check compares what was acknowledged with what has come.
func (c *checker) check() error {
	begin, err := c.eras.Place(c.begin)
	if err != nil {
		return err
	}
	end, err := c.eras.Place(c.end)
	if err != nil {
		return err
	}
	// What the place of an event has, by its acknowledgement or by a client.
	has := make(map[Place]*published)
	counted := make(map[string][]*published) // by topic
	for _, p := range c.order {
		if p.place, err = c.eras.Place(p.id); err != nil {
			c.fault("%q: %v", p.data, err)
			continue
		}
		if other := has[p.place]; other != nil {
			c.fault("%q and %q were both acknowledged as %s", other.data, p.data, p.id)
			continue
		}
		has[p.place] = p
		if begin.Before(p.place) && !end.Before(p.place) {
			counted[p.topic] = append(counted[p.topic], p)
			c.Acknowledged++
		}
	}
	c.Clients = len(c.clients)
	places := make(map[*published]map[Place]bool) // of events that have come from more than one
	for i, of := range c.clients {
		c.checkEvents(i+1, of, begin, has, places)
	}
	for i, of := range c.clients {
		c.checkComplete(i+1, of, counted)
	}
	for p, all := range places {
		if p.tries == 1 {
			c.fault("%q was published once, and is stored %d times", p.data, len(all))
		} else {
			c.Twice++
		}
	}
	for _, all := range counted {
		for _, p := range all {
			if p.missing > 0 && !p.seen {
				c.fault("%s %q was acknowledged, and none of %d clients has it: a false acknowledgement, or it is lost",
					p.id, p.data, p.missing)
			}
		}
	}
	for data, p := range c.tries {
		if p.tries == 0 {
			c.fault("%q has come, and was never published", data)
		}
	}
	return nil
}

// clientFault notes a fault of what a client got.
func (c *checker) clientFault(who int, of *client, format string, a ...any) {
	c.fault("client %d, %s %v: %s", who, of.Name, of.Filters, fmt.Sprintf(format, a...))
}

// checkEvents checks that the events of a client were published, are in order, and are at places of
// their own.
func (c *checker) checkEvents(who int, of *client, begin Place, has map[Place]*published,
	places map[*published]map[Place]bool) {
	last := make([]Place, len(of.Filters))
	for i := range last {
		last[i] = begin
	}
	of.got = make(map[Place]*published)
	for _, e := range of.events {
		at, err := c.eras.Place(e.ID)
		f := of.Owner(e.Topic)
		p := c.tries[e.Data]
		switch {
		case err != nil:
			c.clientFault(who, of, "%v", err)
			continue
		case f < 0 || e.Topic != p.topic:
			c.clientFault(who, of, "it has got %q of %s", e.Data, e.Topic)
			continue
		case !last[f].Before(at):
			c.clientFault(who, of, "%v comes after %v: %q", at, last[f], e.Data)
		}
		last[f], of.got[at] = at, p
		if p.place == (Place{}) {
			p.place = at // of an event that was not acknowledged
		}
		if p.place != at {
			if places[p] == nil {
				places[p] = map[Place]bool{p.place: true}
			}
			places[p][at] = true
		}
		if other := has[at]; other == nil {
			has[at] = p
		} else if other != p {
			c.clientFault(who, of, "%s is %q, and for others %q", e.ID, e.Data, other.data)
		}
	}
}

// checkComplete checks that each event that was acknowledged has come to a client, or is in one gap.
func (c *checker) checkComplete(who int, of *client, counted map[string][]*published) {
	for _, g := range of.gaps {
		s, err := c.eras.span(&g)
		if err != nil {
			c.clientFault(who, of, "the gap %+v: %v", g, err)
		}
		of.spans = append(of.spans, s)
	}
	for topic, all := range counted {
		f := of.Owner(topic)
		if f < 0 {
			continue
		}
		for _, p := range all {
			gaps := 0
			for i, s := range of.spans {
				if (of.Mercure || of.gaps[i].Topic == of.Filters[f]) && c.eras.covers(s, p.place) {
					gaps++
				}
			}
			got := of.got[p.place] == p
			n := gaps
			if c.Told += gaps; got {
				c.Delivered++
				n++
			}
			p.seen = p.seen || n > 0
			switch {
			case n == 1, n == 0 && of.Partial:
			default:
				if n == 0 {
					p.missing++
				}
				c.clientFault(who, of, "%s %q: it has come: %v, and it is in %d gaps", p.id, p.data, got, gaps)
			}
		}
	}
}
