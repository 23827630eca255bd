package history

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// two is a client of each of the topics a and b, of which a has the events 2 and 4, and b the event 3.
// The event 1 is before the begin, and the event 5 after the end.
func two() []Record {
	return []Record{
		{Era: &Era{Epoch: "e"}},
		{Try: &Try{Topic: "a", Data: "a first", N: 1, Status: 200, ID: "e-1"}},
		{Begin: "e-1"},
		{Who: 1, Client: &Client{Name: "sse", Filters: []string{"a"}}},
		{Who: 2, Client: &Client{Name: "poll", Filters: []string{"b", "*"}}},
		{Try: &Try{Topic: "a", Data: "a 1", N: 1, Status: 200, ID: "e-2"}},
		{Who: 1, Event: &Event{"a", "e-2", "a 1"}},
		{Who: 2, Event: &Event{"a", "e-2", "a 1"}},
		{Try: &Try{Topic: "b", Data: "b 1", N: 1, Status: 503}},
		{Try: &Try{Topic: "b", Data: "b 1", N: 2}},
		{Who: 2, Event: &Event{"b", "e-3", "b 1"}},
		{Try: &Try{Topic: "b", Data: "b 1", N: 3, Status: 200, ID: "e-3"}},
		{Try: &Try{Topic: "a", Data: "a 2", N: 1, Status: 200, ID: "e-4"}},
		{Who: 1, Gap: &Gap{"a", "e-2", "e-4"}},
		{Who: 2, Event: &Event{"a", "e-4", "a 2"}},
		{End: "e-4"},
		{Try: &Try{Topic: "a", Data: "a probe", N: 1, Status: 200, ID: "e-5"}},
	}
}

// Each history of the table is wrong in one way. The others are right.
func TestCheck(t *testing.T) {
	drop := func(at ...int) func([]Record) []Record {
		return func(all []Record) []Record {
			slices.Reverse(at)
			for _, i := range at {
				all = slices.Delete(all, i, i+1)
			}
			return all
		}
	}
	set := func(at int, r Record) func([]Record) []Record {
		return func(all []Record) []Record {
			all[at] = r
			return all
		}
	}
	add := func(more ...Record) func([]Record) []Record {
		return func(all []Record) []Record { return append(all, more...) }
	}
	for name, c := range map[string]struct {
		change func([]Record) []Record
		want   string // a part of the fault, or empty
	}{
		"right":                   {add(), ""},
		"lost":                    {drop(7), `client 2, poll [b *]: e-2 "a 1": it has come: false, and it is in 0 gaps`},
		"lost for all":            {drop(6, 7), `e-2 "a 1" was acknowledged, and none of 2 clients has it`},
		"twice":                   {add(Record{Who: 2, Event: &Event{"a", "e-4", "a 2"}}), "{0 4} comes after {0 4}"},
		"out of order":            {func(all []Record) []Record { all[7], all[14] = all[14], all[7]; return all }, "{0 2} comes after {0 4}"},
		"of topics without order": {func(all []Record) []Record { all[7], all[10] = all[10], all[7]; return all }, ""},
		"gap too small":           {set(13, Record{Who: 1, Gap: &Gap{"a", "e-2", "e-3"}}), `e-4 "a 2": it has come: false, and it is in 0 gaps`},
		"gap too large":           {set(13, Record{Who: 1, Gap: &Gap{"a", "e-1", "e-4"}}), `e-2 "a 1": it has come: true, and it is in 1 gaps`},
		"gap twice":               {add(Record{Who: 1, Gap: &Gap{"a", "e-3", "e-4"}}), `e-4 "a 2": it has come: false, and it is in 2 gaps`},
		"gap of another topic":    {set(13, Record{Who: 1, Gap: &Gap{"b", "e-2", "e-4"}}), `e-4 "a 2": it has come: false, and it is in 0 gaps`},
		"gap of no stream":        {set(13, Record{Who: 1, Gap: &Gap{"a", "e-2", "x-4"}}), "a strange id"},
		"false acknowledgement": {set(12, Record{Try: &Try{Topic: "a", Data: "a 2", N: 1, Status: 200, ID: "e-3"}}),
			`both acknowledged as e-3`},
		"acknowledged elsewhere": {set(5, Record{Try: &Try{Topic: "a", Data: "a 1", N: 1, Status: 200, ID: "e-6"}}),
			`was published once, and is stored 2 times`},
		"acknowledged while cut off": {func(all []Record) []Record {
			all[12].Try.Began, all[12].Try.Node = 2, 1
			return slices.Insert(all, 12, Record{At: 1, Cut: &Cut{1, true}})
		}, `node 1 has acknowledged "a 2"`},
		"acknowledged after a cut": {func(all []Record) []Record {
			all[12].Try.Began, all[12].Try.Node = 2, 1
			return slices.Insert(all, 12, Record{At: 1, Cut: &Cut{1, true}}, Record{At: 2, Cut: &Cut{1, false}})
		}, ""},
		"asked before a cut": {func(all []Record) []Record {
			return slices.Insert(all, 12, Record{At: 1, Cut: &Cut{0, true}})
		}, ""},
		"never published":        {add(Record{Who: 1, Event: &Event{"a", "e-6", "a 9"}}), "was never published"},
		"before it is published": {func(all []Record) []Record { all[11].Try.Began, all[8].Try.Began = 9, 9; return all }, "before it was published"},
		"another event": {set(14, Record{Who: 2, Event: &Event{"a", "e-4", "a first"}}),
			`e-4 is "a first", and for others "a 2"`},
		"another topic":    {set(10, Record{Who: 2, Event: &Event{"b", "e-3", "a first"}}), `it has got "a first" of b`},
		"a topic unwanted": {set(6, Record{Who: 1, Event: &Event{"b", "e-2", "b 1"}}), `it has got "b 1" of b`},
		"stored twice, tried once": {add(Record{Who: 2, Event: &Event{"a", "e-5", "a 2"}}),
			`"a 2" was published once, and is stored 2 times`},
		"stored twice, tried often": {add(Record{Who: 2, Event: &Event{"b", "e-6", "b 1"}}), ""},
		"a status":                  {add(Record{Try: &Try{Topic: "a", Data: "a 3", N: 1, Status: 500}}), "answered with 500"},
		"two ids":                   {add(Record{Try: &Try{Topic: "b", Data: "b 1", N: 4, Status: 200, ID: "e-6"}}), "acknowledged as e-3 and e-6"},
		"wrong":                     {add(Record{Who: 1, Wrong: "a gap that has nothing"}), "client 1: a gap that has nothing"},
		"no client":                 {add(Record{Who: 3, Event: &Event{"a", "e-5", "a 2"}}), "a client 3 that has not begun"},
		"told of no gap": {func(all []Record) []Record {
			all[3].Client.Partial = true
			return slices.Delete(all, 13, 14)
		}, ""},
		"lost with an era": {func(all []Record) []Record {
			all[14] = Record{Era: &Era{Epoch: "f", Base: 3}}
			return append(slices.Insert(all, 15, Record{Who: 2, Gap: &Gap{"b", "e-3", "f-3"}}, Record{Who: 2, Gap: &Gap{"*", "e-2", "f-3"}},
				Record{Try: &Try{Topic: "a", Data: "a 3", N: 1, Status: 200, ID: "f-4"}}),
				Record{Who: 2, Event: &Event{"a", "f-4", "a 3"}}, Record{Who: 1, Event: &Event{"a", "f-4", "a 3"}})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var faults []string
			report, err := check(t, c.change(two()), &faults)
			if err != nil {
				t.Fatal(err)
			}
			if report.Faults != len(faults) {
				t.Errorf("%d faults, and %q", report.Faults, faults)
			}
			has := func(fault string) bool { return strings.Contains(fault, c.want) }
			if c.want == "" && len(faults) > 0 || c.want != "" && !slices.ContainsFunc(faults, has) {
				t.Errorf("got %q, want %q", faults, c.want)
			}
		})
	}
}

// check writes records to a file, and checks that.
func check(t *testing.T, all []Record, faults *[]string) (Report, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "history")
	w, err := Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.At == 0 && r.Cut == nil {
			r.At = 3
		}
		w.write(r)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return Check(f, func(fault string) { *faults = append(*faults, fault) })
}

// The counts of a history that is right.
func TestReport(t *testing.T) {
	var faults []string
	got, err := check(t, two(), &faults)
	want := Report{Acknowledged: 3, Unanswered: 1, Unavailable: 1, Clients: 2, Delivered: 4, Told: 1, Gaps: 1}
	if got != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// A history that is cut short, or has nothing, is not taken for right.
func TestIncomplete(t *testing.T) {
	for name, all := range map[string][]Record{
		"empty":      nil,
		"no end":     two()[:15],
		"no clients": {{Era: &Era{Epoch: "e"}}, {Begin: "e-1"}, {End: "e-2"}},
	} {
		var faults []string
		if _, err := check(t, all, &faults); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Check(strings.NewReader(`{"at":1,"be`), nil); err == nil {
		t.Error("a part of a line: no error")
	}
}
