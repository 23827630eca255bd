package conformance

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A range of names, as in s{1..40}.
var rangePattern = regexp.MustCompile(`\{(-?\d+)\.\.(-?\d+)\}`)

func hasRange(word string) bool {
	return strings.Contains(word, "{") && rangePattern.MatchString(word)
}

// ranges repeats what contains a range, once for each of its numbers: in a call the entry, in a
// list of notifications the notification, in any other statement the word. A word that is only a
// range repeats and vanishes. Neighbors with the same range take turns: "enable a{1..2} in; disable
// a{1..2}" enables a1, disables a1, enables a2, disables a2.
func (r *run) ranges(words []string) []string {
	if !slices.ContainsFunc(words, hasRange) {
		return words
	}
	head := 0
	if strings.HasSuffix(words[0], ":") {
		head = 1
	}
	switch words[head] {
	case "want", "now", "completed", "served", "end-workers":
		return r.eachPart(words, head+1, ",")
	case "woken", "within":
		return r.eachPart(words, head+2, ",")
	case "enable", "disable", "remove", "nothing":
		return r.eachPart(words, head, ";")
	}
	if isOperation(words[head]) {
		return r.eachPart(words, head, ";")
	}
	var all []string
	for _, word := range words {
		for _, i := range r.rangeOf([]string{word}) {
			all = append(all, replaceRange(word, i))
		}
	}
	return all
}

// eachPart repeats the parts of a list, behind its head.
func (r *run) eachPart(words []string, head int, separator string) []string {
	parts := lists(words[head:], separator)
	var all [][]string
	for i := 0; i < len(parts); {
		what, want := outcome(parts[i])
		if separator == ";" && !slices.ContainsFunc(what, hasRange) {
			if len(want) > 0 {
				want = r.eachPart(append([]string{"->"}, want...), 1, ",")
			}
			all, i = append(all, slices.Concat(what, want)), i+1
			continue
		}
		numbers, end := r.rangeOf(parts[i]), i+1
		for len(numbers) > 1 && end < len(parts) && slices.Equal(r.rangeOf(parts[end]), numbers) {
			end++
		}
		for _, n := range numbers {
			for _, part := range parts[i:end] {
				var one []string
				for _, word := range part {
					if word = replaceRange(word, n); word != "" {
						one = append(one, word)
					}
				}
				all = append(all, one)
			}
		}
		i = end
	}
	joined := slices.Clone(words[:head])
	for i, part := range all {
		if i > 0 {
			joined = append(joined, separator)
		}
		joined = append(joined, part...)
	}
	return joined
}

// rangeOf returns the numbers of the range in words, or one number where there is none.
func (r *run) rangeOf(words []string) []string {
	for _, word := range words {
		m := rangePattern.FindStringSubmatch(word)
		if m == nil {
			continue
		}
		var all []string
		for i := r.number(m[1]); i <= r.number(m[2]); i++ {
			all = append(all, strconv.Itoa(i))
		}
		return all
	}
	return []string{""}
}

func replaceRange(word, n string) string {
	if n == "" || rangePattern.FindString(word) == word {
		return rangePattern.ReplaceAllString(word, "")
	}
	return rangePattern.ReplaceAllString(word, n)
}
