package psn

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// The layouts of SOCK_NOTIFY_REGISTRATION and OVERLAPPED_ENTRY, with handles of 8 bytes and of 4.
func TestLayouts(t *testing.T) {
	var (
		r Registration
		e Entry
	)
	for _, f := range []struct {
		name           string
		got            uintptr
		wide, narrower uintptr
	}{
		{"Registration", unsafe.Sizeof(r), 24, 16},
		{"Registration.Socket", unsafe.Offsetof(r.Socket), 0, 0},
		{"Registration.Key", unsafe.Offsetof(r.Key), 8, 4},
		{"Registration.Filter", unsafe.Offsetof(r.Filter), 16, 8},
		{"Registration.Op", unsafe.Offsetof(r.Op), 18, 10},
		{"Registration.Trigger", unsafe.Offsetof(r.Trigger), 19, 11},
		{"Registration.Result", unsafe.Offsetof(r.Result), 20, 12},
		{"Entry", unsafe.Sizeof(e), 32, 16},
		{"Entry.Key", unsafe.Offsetof(e.Key), 0, 0},
		{"Entry.Transfer", unsafe.Offsetof(e.Transfer), 24, 12},
	} {
		want := f.wide
		if unsafe.Sizeof(uintptr(0)) == 4 {
			want = f.narrower
		}
		if f.got != want {
			t.Errorf("%s: %d; want %d", f.name, f.got, want)
		}
	}
}

// The registrations of each action, alone and with a harvest in the same call.
func TestActions(t *testing.T) {
	type reg struct {
		op, trigger uint8
		filter      uint16
	}
	disable, remove := reg{op: 2}, reg{op: 4}
	enable := func(filter uint16) reg { return reg{1, 0x05, filter} } // always one-shot and level
	for _, c := range []struct {
		name     string
		action   backend.Action
		interest backend.Mask
		want     []reg
	}{
		{"enable new", backend.Add, in | closed, []reg{disable, enable(0x05)}},
		{"enable existing, other filter", backend.Set, out, []reg{disable, enable(0x02)}},
		{"enable, no filter", backend.Set, 0, []reg{disable, enable(0)}},
		{"enable, hang-up only", backend.Set, closed, []reg{disable, enable(0x04)}},
		{"enable, all", backend.Set, in | out | closed, []reg{disable, enable(0x07)}},
		{"disable", backend.Suppress, 0, []reg{disable}},
		{"remove", backend.Delete, 0, []reg{remove}},
	} {
		for _, room := range []int{0, 8} {
			var calls, entries int
			var got []reg
			sys := silent()
			registered := c.action != backend.Add
			sys.Process = func(_ uintptr, regs []Registration, timeout uint32, out []Entry) (int, uint32) {
				if timeout != 0 {
					t.Errorf("%s: the call waits %d ms", c.name, timeout)
				}
				calls, entries, got = calls+1, len(out), got[:0]
				for i := range regs {
					r := &regs[i]
					got = append(got, reg{r.Op, r.Trigger, r.Filter})
					if r.Result = success; r.Op != opEnable && !registered {
						r.Result = 1168
					}
				}
				if len(out) > 0 {
					return 0, waitTimeout
				}
				return 0, success
			}
			p, err := NewOn(sys)
			if err != nil {
				t.Fatal(err)
			}
			if registered {
				p.(*Poller).table.create(4)
			}
			change := []backend.Change{{Handle: 4, Token: 1, Interest: c.interest, Action: c.action}}
			p.Poll(change, make([]backend.Ready, room))
			if change[0].Status != backend.Done || calls != 1 || entries != room || !slices.Equal(got, c.want) {
				t.Errorf("%s, room for %d: status %d, %d calls, the last with %v and room for %d; want %v",
					c.name, room, change[0].Status, calls, got, entries, c.want)
			}
		}
	}
}
