//go:build !linux

package nowait

// A Pipe is what Linux has.
type Pipe struct{}

// TakePipe returns nil.
func TakePipe() *Pipe { return nil }

func (*Pipe) Release()                        { panic("nowait: no pipe") }
func (*Pipe) Len() int                        { panic("nowait: no pipe") }
func (*Pipe) Fill(Socket) (int, error)        { panic("nowait: no pipe") }
func (*Pipe) Drain(Socket, bool) (int, error) { panic("nowait: no pipe") }
