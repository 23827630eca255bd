//go:build unix

package socknotify_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/socknotify/socknotify"
)

func ExampleOpError() {
	port, err := socknotify.New[int]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	regs := []socknotify.Registration[int]{{Handle: ^uintptr(0), Key: 1, Filter: socknotify.EventIn, Op: socknotify.OpEnable, Trigger: socknotify.TriggerLevel}}
	port.Process(regs, nil, 0)
	var op *socknotify.OpError
	if errors.As(regs[0].Result, &op) {
		fmt.Println(op)
	}
	// Output: socknotify: enable socket -1: bad socket: bad file descriptor
}
