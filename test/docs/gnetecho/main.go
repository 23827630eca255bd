// Command gnetecho is the echo server on gnet of docs/from-gnet.md. TestGnetPrograms runs it.
package main

import (
	"log"

	"github.com/panjf2000/gnet/v2"
)

type echo struct{ gnet.BuiltinEventEngine }

func (*echo) OnTraffic(c gnet.Conn) gnet.Action {
	b, _ := c.Next(-1)
	c.Write(b)
	return gnet.None
}

func main() {
	log.Fatal(gnet.Run(new(echo), "tcp://127.0.0.1:9000"))
}
