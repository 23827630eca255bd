package gateway

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v4"
)

// README.md has each metric, and alerts.yml no other. The metrics that alerts are on are marked.
func TestMetricsAreDocumented(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	registry := client.NewRegistry()
	registry.MustRegister(NewCollector(s.Gateway))
	families, err := registry.Gather()
	must(t, err)
	const prefix = "socknotify_push_"
	var names []string
	for _, f := range families {
		names = append(names, strings.TrimPrefix(f.GetName(), prefix))
	}
	b, err := os.ReadFile("alerts.yml")
	must(t, err)
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	must(t, yaml.Unmarshal(b, &rules))
	alerts := ""
	for _, r := range rules.Groups[0].Rules {
		alerts += r.Expr + "\n"
	}
	var used []string
	for _, m := range regexp.MustCompile(prefix+`(\w+)`).FindAllStringSubmatch(alerts, -1) {
		if used = append(used, m[1]); !slices.Contains(names, m[1]) {
			t.Errorf("there is no metric %s for an alert", m[0])
		}
	}
	page, err := os.ReadFile("README.md")
	must(t, err)
	var documented []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		all := regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(cells[1], -1)
		alerted := false
		for _, m := range all {
			documented = append(documented, m[1])
			alerted = alerted || slices.Contains(used, m[1])
		}
		if marked := strings.TrimSpace(cells[3]) == "yes"; len(all) > 0 && marked != alerted {
			t.Errorf("%s: marked: %t, and there are alerts: %t", cells[1], marked, alerted)
		}
	}
	slices.Sort(documented)
	slices.Sort(names)
	if !slices.Equal(documented, names) {
		t.Errorf("the page has %q, want %q", documented, names)
	}
}
