package suite

import (
	"context"
	"math"
	"time"
)

// A plan has the sets that are still to be run, and how long they take. A nil plan is empty.
type plan struct {
	e     *Env
	start time.Time
	jobs  []job
	// now is when the current set began, cost what it is expected to take, and done and samples are the number of its
	// samples so far and in all.
	now           time.Time
	cost          time.Duration
	done, samples int
	// expected and took are sums over the finished sets.
	expected, took time.Duration
}

// A job is a set that is still to be run.
type job struct {
	workload string
	set      Set
	samples  int // of a round
	each     time.Duration
	once     time.Duration
}

// Plan plans the run of these workloads, so that its end can be estimated. It builds the C programs.
func (e *Env) Plan(ctx context.Context, workloads []*Workload) {
	p := &plan{e: e, start: time.Now()}
	for _, w := range workloads {
		contenders := e.Contenders(ctx, w)
		for _, set := range e.Sets(w) {
			n := 0
			for _, en := range e.entries(set.Params, contenders) {
				if en.missing == "" {
					n++
				}
			}
			if len(w.reference) > 0 {
				n = 2*n - 1 // the reference before and after each of the others
			}
			p.jobs = append(p.jobs, e.job(w, set, n))
		}
	}
	e.plan = p
}

// job estimates how long a sample takes on a quiet machine: to start its processes, to make its connections or sockets,
// to warm up and to measure, and with servers, in the first round, to count system calls.
func (e *Env) job(w *Workload, set Set, samples int) job {
	p := set.Params
	j := job{workload: w.Name, set: set, samples: samples}
	j.each = e.Window + 30*time.Millisecond + time.Duration(p.Registered)*25*time.Microsecond
	if p.Active > 0 {
		j.each += 20 * time.Millisecond // to measure the cost of the byte again at the end
	}
	if p.What != portsPart && (w.servers || w.Name == "udp") {
		j.each += e.Warm + time.Duration(p.Connections)*70*time.Microsecond
		j.once = time.Duration((samples+1)/2) * (e.Window + 60*time.Millisecond)
	}
	if p.What == serversPart {
		j.each, j.once = 500*time.Millisecond+time.Duration(p.Connections)*140*time.Microsecond, 0
	}
	return j
}

func (j *job) takes(rounds int) time.Duration {
	return j.once + time.Duration(rounds*j.samples)*j.each
}

// rounds returns the number of rounds of a set: all, or its share. If time is short, sets with a share have fewer.
func (e *Env) rounds(s Set, shrink float64) int {
	r := float64(e.Rounds) * s.Share
	if s.Share < 1 {
		r *= shrink
	}
	return max(1, int(math.Ceil(r-1e-9)))
}

// shrink returns for which part of the rounds of sets with a share there is time.
func (p *plan) shrink() float64 {
	if p == nil || p.e.Within == 0 {
		return 1
	}
	var main, side time.Duration
	for i := range p.jobs {
		j := &p.jobs[i]
		if t := j.takes(p.e.rounds(j.set, 1)); j.set.Share < 1 {
			side += t
		} else {
			main += t
		}
	}
	left := float64(p.e.Within-time.Since(p.start))/p.pace() - float64(main)
	if side == 0 || left >= float64(side) {
		return 1
	}
	return max(0, left/float64(side))
}

// pace returns the ratio of the time that sets took to the expected time.
func (p *plan) pace() float64 {
	if p.expected == 0 {
		return 1
	}
	return float64(p.took) / float64(p.expected)
}

// late reports whether there is too little time for all rounds.
func (p *plan) late() bool { return p.shrink() < 1 }

// begin begins a set and returns the number of its rounds.
func (e *Env) begin(w *Workload, set Set) int {
	p := e.plan
	rounds := e.rounds(set, p.shrink())
	if p == nil {
		return rounds
	}
	for i, j := range p.jobs {
		if j.workload == w.Name && j.set == set {
			p.jobs = append(p.jobs[:i:i], p.jobs[i+1:]...)
			p.now, p.cost, p.done, p.samples = time.Now(), j.takes(rounds), 0, rounds*j.samples
			break
		}
	}
	return rounds
}

func (p *plan) sampled() {
	if p != nil {
		p.done++
	}
}

// end ends the current set.
func (p *plan) end() {
	if p == nil {
		return
	}
	p.expected += p.cost
	p.took += time.Since(p.now)
	p.cost, p.samples = 0, 0
}

// left returns how long the run still takes, or 0 if unknown.
func (p *plan) left() time.Duration {
	if p == nil {
		return 0
	}
	shrink := p.shrink()
	var sum time.Duration
	for i := range p.jobs {
		j := &p.jobs[i]
		sum += j.takes(p.e.rounds(j.set, shrink))
	}
	if p.samples > 0 {
		sum += p.cost * time.Duration(max(0, p.samples-p.done)) / time.Duration(p.samples)
	}
	return time.Duration(float64(sum) * p.pace())
}

// Left returns how long the planned run still takes.
func (e *Env) Left() time.Duration { return e.plan.left() }
