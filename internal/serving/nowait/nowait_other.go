//go:build !unix

package nowait

const supported = false

func (Socket) Read([]byte) (int, error)  { panic("nowait: no socket") }
func (Socket) Write([]byte) (int, error) { panic("nowait: no socket") }
func (Socket) Writable() bool            { panic("nowait: no socket") }
func (Socket) Readable() bool            { panic("nowait: no socket") }
func (Socket) HungUp() bool              { panic("nowait: no socket") }
