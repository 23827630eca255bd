package sockettest

// Sequence returns n bytes of an endless sequence, from a place on. Neighbouring bytes differ, and so
// do blocks of 256 and of 64 KiB, so a test finds bytes that were lost, repeated or moved.
func Sequence(at, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		j := at + i
		b[i] = byte(j ^ j>>8 ^ j>>16)
	}
	return b
}
