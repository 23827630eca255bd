package conformance

import (
	"math"
	"strings"
)

// A named is a key with two fields, the latter of any type.
type named struct {
	name  string
	value any
}

// specialKeys are keys that are no names. Each use of one makes it again.
var specialKeys = map[string]func() any{
	"nil":              func() any { return nil },
	"%text":            func() any { return strings.Clone("text") },
	"%1":               func() any { return 1 },
	"%int64":           func() any { return int64(1) },
	"%float":           func() any { return 3.5 },
	"%struct":          func() any { return named{strings.Clone("x"), 1} },
	"%slice":           func() any { return []int{1, 2} },
	"%map":             func() any { return map[int]int{} },
	"%func":            func() any { return func() {} },
	"%struct-of-slice": func() any { return named{"x", []int{}} },
	"%array-of-func":   func() any { return [1]any{func() {}} },
	"%nan":             func() any { return math.NaN() },
	"%nan32":           func() any { return float32(math.NaN()) },
	"%complex":         func() any { return complex(1, math.NaN()) },
	"%struct-of-nan":   func() any { return struct{ a float64 }{math.NaN()} },
	"%array-of-nan":    func() any { return [1]float32{float32(math.NaN())} },
	"%nan-inside":      func() any { return named{"x", math.NaN()} },
	"%nan-deep":        func() any { return [2]any{1, [1]any{math.NaN()}} },
}
