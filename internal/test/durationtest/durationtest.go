// Package durationtest runs a test with the longest durations in each field that can have one.
package durationtest

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

var duration = reflect.TypeFor[time.Duration]()

// Longest runs f for each exported field of type time.Duration that like has. set sets that field
// of a configuration to the longest duration, and in another run to one that is a nanosecond
// shorter. So a field that is added to T later is tested too. In a last run set sets all fields, if
// there are several. The fields of structs inside like are included, also below a pointer that is
// not nil; set sets such a pointer if the configuration has none. The runs are subtests with the
// name of the field, which run in parallel.
func Longest[T any](t *testing.T, like *T, f func(t *testing.T, set func(*T))) {
	t.Helper()
	names := find(nil, reflect.ValueOf(like).Elem(), "")
	if len(names) == 0 {
		t.Fatalf("%T has no field of type time.Duration", like)
	}
	run := func(subtest string, value time.Duration, names ...string) {
		t.Run(fmt.Sprintf("%s=%d", subtest, value), func(t *testing.T) {
			t.Parallel()
			f(t, func(c *T) {
				for _, name := range names {
					fieldOf(reflect.ValueOf(c).Elem(), name).SetInt(int64(value))
				}
			})
		})
	}
	for _, name := range names {
		run(name, math.MaxInt64, name)
		run(name, math.MaxInt64-1, name)
	}
	if len(names) > 1 {
		run("all", math.MaxInt64, names...)
	}
}

// find appends the names of the fields in v, which is a struct.
func find(names []string, v reflect.Value, path string) []string {
	for i := range v.NumField() {
		if !v.Type().Field(i).IsExported() {
			continue
		}
		name, field := path+v.Type().Field(i).Name, v.Field(i)
		if field.Kind() == reflect.Pointer && !field.IsNil() {
			field = field.Elem()
		}
		switch {
		case field.Type() == duration:
			names = append(names, name)
		case field.Kind() == reflect.Struct:
			names = find(names, field, name+".")
		}
	}
	return names
}

// fieldOf returns the field with a name that find has returned.
func fieldOf(v reflect.Value, name string) reflect.Value {
	for part := range strings.SplitSeq(name, ".") {
		if v = v.FieldByName(part); v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
	}
	return v
}
