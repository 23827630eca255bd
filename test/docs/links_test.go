package docs_test

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var host = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]{2,}$`)

// checkLinks finds links without a target. Links to other sites are not followed.
func checkLinks(t *testing.T, p *page) {
	for _, link := range p.links {
		if fault := checkTarget(t, p, link.text); fault != "" {
			p.faultAt(link.at, "the link to %q: %s", link.text, fault)
		}
	}
}

// checkTarget returns what is wrong with the target of a link, or an empty string.
func checkTarget(t *testing.T, p *page, target string) string {
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return err.Error()
	case target == "":
		return "it is empty"
	case u.Scheme == "https" && !host.MatchString(u.Host):
		return "no such host can be"
	case u.Scheme == "https":
		return ""
	case u.Scheme != "":
		return "not https"
	case u.Host != "" || strings.HasPrefix(u.Path, "/"):
		return "not relative"
	}
	to, on := p.path, p
	if u.Path != "" {
		to = path.Join(path.Dir(p.path), u.Path)
		if strings.HasPrefix(to, "../..") {
			return "outside the project"
		}
		if _, err := os.Stat(filepath.FromSlash(to)); err != nil {
			return "no such file"
		}
		if strings.HasSuffix(to, ".md") {
			on = parse(to, read(t, to))
		}
	}
	switch {
	case u.Fragment == "":
	case !strings.HasSuffix(to, ".md"):
		return "only documents have names for their parts"
	case !on.anchors[u.Fragment]:
		return "no such heading"
	}
	return ""
}
