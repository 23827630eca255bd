package main

import (
	"flag"
	"log"
	"net"

	sn "github.com/socknotify/socknotify"
)

type conn = *net.TCPConn

func arm(c conn) sn.Registration[conn] {
	return sn.Enable(c, c, sn.EventIn, sn.TriggerLevel|sn.TriggerOneShot)
}

func serve(port *sn.Port[conn]) {
	var regs []sn.Registration[conn]
	ready, buf := make([]sn.Notification[conn], 16), make([]byte, 4096)
	for {
		n, err := port.Process(regs, ready, -1) // enables what was handled, dequeues what is next
		if err != nil {
			log.Fatal(err)
		}
		regs = regs[:0]
		for _, nt := range ready[:n] {
			if nt.Events == sn.EventRemove { // nothing follows for this key
				nt.Key.Close()
				continue
			}
			reg := arm(nt.Key)
			if k, err := nt.Key.Read(buf); err != nil { // after EventIn one Read does not block
				reg = sn.Remove[conn](nt.Key)
			} else {
				nt.Key.Write(buf[:k])
			}
			regs = append(regs, reg)
		}
	}
}

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "address to listen on")
	flag.Parse()
	port, err := sn.New[conn]()
	if err != nil {
		log.Fatal(err)
	}
	ln, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Println("listening on", ln.Addr())
	go serve(port) // any number
	go serve(port)
	for {
		c, err := ln.Accept()
		if err != nil {
			log.Fatal(err)
		}
		port.Process([]sn.Registration[conn]{arm(c.(conn))}, nil, 0)
	}
}
