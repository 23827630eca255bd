// Command step1 has one port and one socket. It prints the notifications of a connection.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"time"

	sn "github.com/socknotify/socknotify"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:9000", "address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Println("listening on", listener.Addr())
	conn, err := listener.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	port, err := sn.New[string]() // keys are strings here
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	regs := []sn.Registration[string]{{
		Conn:    conn.(*net.TCPConn),
		Key:     "the connection",
		Op:      sn.OpEnable,
		Filter:  sn.EventIn | sn.EventHangup,
		Trigger: sn.TriggerLevel | sn.TriggerPersistent,
	}}
	if _, err := port.Process(regs, nil, 0); err != nil { // nil: this call only registers
		log.Fatal(err)
	}
	if regs[0].Result != nil { // the result of this registration
		log.Fatal(regs[0].Result)
	}

	ready, buf := make([]sn.Notification[string], 1), make([]byte, 8)
	for {
		_, err := port.Process(nil, ready, 10*time.Second)
		if err == sn.ErrTimeout {
			fmt.Println("nothing for 10 s")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %v", ready[0].Key, ready[0].Events)
		if ready[0].Events == sn.EventRemove { // the last notification
			fmt.Println()
			return
		}
		n, err := conn.Read(buf)
		fmt.Printf(", read %q, %v\n", buf[:n], err)
		if err != nil { // io.EOF: the peer has closed
			regs[0].Op = sn.OpRemove
			if _, err := port.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
				log.Fatal(err, regs[0].Result)
			}
		}
	}
}
