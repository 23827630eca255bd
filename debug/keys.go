package debug

import (
	"fmt"
	"reflect"
	"strings"
)

// keyText returns the default text of a key. It shows the key itself, and not what it points to. It calls no method
// of the key, because a method might read memory that is being written concurrently.
func keyText[K comparable](key K) string {
	v := reflect.ValueOf(&key).Elem()
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	var b strings.Builder
	writeKey(&b, v)
	return shorten(b.String())
}

const maxKey = 200

func shorten(s string) string {
	if len(s) <= maxKey {
		return s
	}
	return strings.ToValidUTF8(s[:maxKey], "") + "…"
}

func writeKey(b *strings.Builder, v reflect.Value) {
	if b.Len() > maxKey {
		return
	}
	switch v.Kind() {
	case reflect.Invalid:
		b.WriteString("nil")
	case reflect.Bool:
		fmt.Fprint(b, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		fmt.Fprint(b, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		fmt.Fprint(b, v.Uint())
	case reflect.Float32, reflect.Float64:
		fmt.Fprint(b, v.Float())
	case reflect.Complex64, reflect.Complex128:
		fmt.Fprint(b, v.Complex())
	case reflect.String:
		b.WriteString(v.String())
	case reflect.Pointer, reflect.Chan, reflect.UnsafePointer:
		if v.IsNil() {
			b.WriteString("nil")
			return
		}
		fmt.Fprintf(b, "%s %#x", v.Type(), v.Pointer())
	case reflect.Interface:
		writeKey(b, v.Elem())
	case reflect.Struct:
		writeKeys(b, "{}", v.NumField(), v.Field)
	case reflect.Array:
		writeKeys(b, "[]", v.Len(), v.Index)
	default:
		b.WriteString(v.Type().String())
	}
}

// writeKeys writes the n elements of a key between brackets.
func writeKeys(b *strings.Builder, brackets string, n int, element func(int) reflect.Value) {
	b.WriteByte(brackets[0])
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		writeKey(b, element(i))
	}
	b.WriteByte(brackets[1])
}
