package event

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// covers agrees with matching words one by one, for all small filters and topics.
func TestCovers(t *testing.T) {
	words := []string{"a", "b", "*", ">"}
	var filters []string
	var add func(prefix string, depth int)
	add = func(prefix string, depth int) {
		for _, w := range words {
			f := strings.TrimPrefix(prefix+"."+w, ".")
			if CheckTopic(f, true) != nil {
				continue
			}
			filters = append(filters, f)
			if depth > 1 && w != ">" {
				add(f, depth-1)
			}
		}
	}
	add("", 3)
	var topics []string
	for _, f := range filters {
		if CheckTopic(f, false) == nil {
			topics = append(topics, f, f+".c.c")
		}
	}
	matches := func(filter, topic string) bool {
		f, w := strings.Split(filter, "."), strings.Split(topic, ".")
		for i := range f {
			if f[i] == ">" {
				return len(w) > i
			}
			if i >= len(w) || f[i] != "*" && f[i] != w[i] {
				return false
			}
		}
		return len(f) == len(w)
	}
	for _, f := range filters {
		if wild := strings.ContainsAny(f, "*>"); IsWild(f) != wild {
			t.Errorf("isWild(%q) is %t", f, !wild)
		}
		for _, topic := range topics {
			if got := Covers(f, topic); got != matches(f, topic) {
				t.Errorf("covers(%q, %q) is %t", f, topic, got)
			}
		}
		for _, g := range filters { // a filter may cover another only if it matches whatever that matches
			more := func(topic string) bool { return matches(g, topic) && !matches(f, topic) }
			if Covers(f, g) && slices.ContainsFunc(topics, more) {
				t.Errorf("covers(%q, %q)", f, g)
			}
		}
	}
}

func FuzzPosition(f *testing.F) {
	for _, s := range []string{"", "a-1", "a-b-3", "-1", "a-", "a-18446744073709551615", "a-1.2", "a-1.", "a-.1", "a-1_2.3", "a-1_~2", "a-1_", "a-_1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		all, err := ParsePositions(s)
		if err != nil || s == "" {
			return
		}
		id := string(AppendPositions(nil, all[0].Epoch, len(all), func(i int) Position { return all[i] }))
		if again, err := ParsePositions(id); err != nil || !reflect.DeepEqual(again, all) {
			t.Errorf("%q: %+v, %q, %+v, %v", s, all, id, again, err)
		}
		if len(all) == 1 && all[0].String() != id {
			t.Errorf("%q: %q and %q", s, all[0].String(), id)
		}
	})
}
