package httpcorpus

import "testing"

func TestRequests(t *testing.T) {
	all := Requests()
	if len(all) < 300 {
		t.Errorf("%d requests, want at least 300", len(all))
	}
	names, texts := make(map[string]bool), make(map[string]string)
	for _, r := range all {
		if names[r.Name] {
			t.Errorf("the name %s is there twice", r.Name)
		}
		if other, ok := texts[r.Text]; ok {
			t.Errorf("%s has the text of %s", r.Name, other)
		}
		names[r.Name], texts[r.Text] = true, r.Name
	}
	t.Logf("%d requests", len(all))
}
