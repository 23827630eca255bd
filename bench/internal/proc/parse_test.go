package proc

import "testing"

func TestParseSchedstat(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int64
		ok   bool
	}{
		{"123456789 42 7\n", 123456789, true},
		{"0 0 0", 0, true},
		{"", 0, false},
		{"1 2", 0, false},
		{"x 2 3", 0, false},
	} {
		got, err := parseSchedstat(tt.in)
		if (err == nil) != tt.ok || got != tt.want {
			t.Errorf("parseSchedstat(%q) = %d, %v", tt.in, got, err)
		}
	}
}

const status = "Name:\tx\nRssAnon:\t    1234 kB\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n"

func TestParseStatus(t *testing.T) {
	if n, err := parseSwitches(status); n != 695 || err != nil {
		t.Errorf("switches = %d, %v", n, err)
	}
	if n, err := field(status, "RssAnon"); n != 1234 || err != nil {
		t.Errorf("RssAnon = %d, %v", n, err)
	}
	if _, err := parseSwitches("voluntary_ctxt_switches:\t150\n"); err == nil {
		t.Error("half of the switches are no error")
	}
	if _, err := field("RssAnon:\tmuch\n", "RssAnon"); err == nil {
		t.Error("no number is no error")
	}
}

func TestSince(t *testing.T) {
	before := Usage{map[string]int64{"1": 10, "2": 20}, map[string]int64{"1": 1, "2": 2}}
	// A thread that is new counts from its start.
	after := Usage{map[string]int64{"1": 15, "2": 20, "3": 7}, map[string]int64{"1": 4, "2": 2, "3": 5}}
	if ns, switches, err := after.Since(before); ns != 12 || switches != 8 || err != nil {
		t.Errorf("= %d, %d, %v", ns, switches, err)
	}
	if _, _, err := before.Since(after); err == nil {
		t.Error("a thread that ended is no error")
	}
}
