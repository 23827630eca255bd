package metric

import (
	"reflect"
	"testing"

	"github.com/socknotify/socknotify"
)

// Every count of Stats is the value of exactly one metric.
func TestEveryCount(t *testing.T) {
	typ := reflect.TypeFor[socknotify.Stats]()
	all := All()
	if len(all) != typ.NumField() {
		t.Errorf("%d metrics of %d counts", len(all), typ.NumField())
	}
	for i := range typ.NumField() {
		var s socknotify.Stats
		if f := reflect.ValueOf(&s).Elem().Field(i); f.CanInt() {
			f.SetInt(42)
		} else {
			f.SetUint(42)
		}
		of := 0
		for _, m := range all {
			if m.Value(&s) == 42 {
				of++
			}
		}
		if of != 1 {
			t.Errorf("%s is the value of %d metrics", typ.Field(i).Name, of)
		}
	}
}
