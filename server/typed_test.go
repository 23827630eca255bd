package server

import (
	"net"
	"reflect"
	"testing"

	testawait "github.com/socknotify/socknotify/internal/test/await"
)

// Every field of a Server reaches the server that runs.
func TestConfigHasEveryField(t *testing.T) {
	var s Server[string]
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || f.Name == "Handler" {
			continue
		}
		switch f := v.Field(i); f.Kind() {
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(i + 1))
		case reflect.Uint8:
			f.SetUint(uint64(i + 1))
		case reflect.String:
			f.SetString("a")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Func:
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		case reflect.Struct:
			if f = f.Field(0); f.Kind() == reflect.Bool {
				f.SetBool(true)
			} else {
				f.SetInt(int64(i + 1))
			}
		default:
			t.Fatalf("%s is a %s", v.Type().Field(i).Name, f.Kind())
		}
	}
	c := configOf(&s)
	opts := reflect.ValueOf(c.opts).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || f.Name == "Handler" {
			continue
		}
		got := opts.FieldByName(f.Name)
		switch {
		case f.Type.Kind() == reflect.Func && got.Pointer() != v.Field(i).Pointer():
			t.Errorf("%s is another function", f.Name)
		case f.Type.Kind() != reflect.Func && !got.Equal(v.Field(i)):
			t.Errorf("%s is %v, want %v", f.Name, got, v.Field(i))
		}
	}
	if c.handler != nil {
		t.Error("config has a handler, and Server has none")
	}
}

// A wide is a handler whose connections have a state of many bytes.
type wide struct{ got chan [100]int }

func (h wide) Open(c *Conn[[100]int]) error {
	for i := range c.Value {
		c.Value[i] = i
	}
	return nil
}

func (h wide) Data(c *Conn[[100]int], buf []byte) error {
	n, err := c.Read(buf)
	if n > 0 {
		c.Value[99] += n
	}
	return err
}

func (h wide) Writable(c *Conn[[100]int]) error { return nil }

func (h wide) Close(c *Conn[[100]int], cause error) { h.got <- c.Value }

// The calls of a handler are given the Conn that newConn has made, with its state, whatever the
// state's type is.
func TestConnOf(t *testing.T) {
	h := wide{make(chan [100]int, 1)}
	calls := newTyped[[100]int](nil, h)
	c := calls.newConn()
	if err := calls.Open(c); err != nil {
		t.Fatal(err)
	}
	if typed := connOf[[100]int](c); &typed.in != c || typed.Value[98] != 98 {
		t.Errorf("another connection, with state %v", typed.Value)
	}
	calls.Close(c, nil)
	if state := <-h.got; state[98] != 98 {
		t.Errorf("Close has got %v", state)
	}
	if !calls.HasWritable() || newTyped[*int](nil, counter{}).HasWritable() {
		t.Error("Writable is called of a handler that has none, or not of one that has it")
	}
	peer, err := net.Dial("tcp", servingOn(t, &Server[[100]int]{Handler: h}).String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if _, err := peer.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	if state := testawait.Receive(t, "Close is called", h.got); state[98] != 98 || state[99] != 104 {
		t.Errorf("Close has got %v", state)
	}
}
