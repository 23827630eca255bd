package winsock

import (
	"errors"
	"testing"
)

// A provider answers questions about handles. Other questions fail.
type provider map[uintptr]map[uint32]uintptr

var (
	errUnknown = errors.New("unsupported option")
	errClosed  = errors.New("no socket")
)

func TestBase(t *testing.T) {
	for _, test := range []struct {
		what  string
		world provider
		want  uintptr
		err   error
	}{
		{"no layer", provider{1: {sioBaseHandle: 1}}, 1, nil},
		{"a layer that lets the question through", provider{1: {sioBaseHandle: 9}}, 9, nil},
		{"no socket", nil, 0, errClosed},
		{"nothing answers", provider{1: {}}, 0, errUnknown},
		{"a layer that answers for select alone", provider{1: {sioBSPHandleSelect: 2}, 2: {sioBaseHandle: 2}}, 2, nil},
		{"for poll alone", provider{1: {sioBSPHandlePoll: 2}, 2: {sioBaseHandle: 3}}, 3, nil},
		{"for the rest alone", provider{1: {sioBSPHandle: 2}, 2: {sioBaseHandle: 2}}, 2, nil},
		{"select is passed through, poll is not", provider{1: {sioBSPHandleSelect: 1, sioBSPHandlePoll: 2}, 2: {sioBaseHandle: 2}}, 2, nil},
		{"all lead nowhere", provider{1: {sioBSPHandleSelect: 1, sioBSPHandlePoll: 1, sioBSPHandle: 1}}, 0, errUnknown},
		{"two layers", provider{1: {sioBSPHandlePoll: 2}, 2: {sioBSPHandleSelect: 3}, 3: {sioBaseHandle: 3}}, 3, nil},
		{"the lowest answers nothing", provider{1: {sioBSPHandleSelect: 2}, 2: {}}, 2, nil},
		{"two that lead to each other", provider{1: {sioBSPHandleSelect: 2}, 2: {sioBSPHandleSelect: 1}}, 0, errUnknown},
	} {
		asked := 0
		ask := func(h uintptr, code uint32) (uintptr, error) {
			if asked++; asked > 1+4*layers {
				t.Fatalf("%s: too many questions", test.what)
			}
			if answers, ok := test.world[h]; !ok {
				return 0, errClosed
			} else if b, ok := answers[code]; ok {
				return b, nil
			}
			return 0, errUnknown
		}
		got, err := base(1, ask, func(err error) bool { return err == errClosed })
		if got != test.want || err != test.err {
			t.Errorf("%s: %d, %v; want %d, %v", test.what, got, err, test.want, test.err)
		}
	}
}
