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

var (
	inlineCode = regexp.MustCompile("(?s)``.+?``|`[^`]+`")
	// The target of a link is in the first group that matches.
	targets = regexp.MustCompile(`\]\(\s*([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+"[^"]*")?\s*\)|(?:src|href|srcset)="([^"]*)"|(?m:^\[[^\]]+\]:\s*(\S+))|<((?:https?|mailto):[^>]*)>|[^("<\w](https?://\S+)`)
	// A reference to a definition.
	reference = regexp.MustCompile(`\[[^\]]+\]\[([^\]]*)\]`)
	host      = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]{2,}$`)
)

// checkLinks finds links without a target. Links to other sites are not followed.
func checkLinks(t *testing.T, p *page) {
	prose := blank(p.prose, inlineCode)
	for _, m := range targets.FindAllStringSubmatchIndex(prose, -1) {
		for g := 2; g < len(m); g += 2 {
			if m[g] >= 0 {
				target := prose[m[g]:m[g+1]]
				if g == 10 { // a bare URL, which punctuation may follow
					target = strings.TrimRight(target, ".,;:!?)")
				}
				if fault := checkTarget(t, p, target); fault != "" {
					p.faultAt(m[g], "the link to %q: %s", target, fault)
				}
			}
		}
	}
	for _, m := range reference.FindAllStringSubmatchIndex(prose, -1) {
		if name := prose[m[2]:m[3]]; !strings.Contains(strings.ToLower(prose), "\n["+strings.ToLower(name)+"]:") {
			p.faultAt(m[0], "nothing defines the link [%s]", name)
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
	case !on.anchors()[u.Fragment]:
		return "no such heading"
	}
	return ""
}

// blank replaces all matches by spaces, so offsets do not change.
func blank(text string, re *regexp.Regexp) string {
	b := []byte(text)
	for _, m := range re.FindAllStringIndex(text, -1) {
		for i := m[0]; i < m[1]; i++ {
			if b[i] != '\n' {
				b[i] = ' '
			}
		}
	}
	return string(b)
}
