//go:build unix && !linux && !darwin

package sock

func sendErr(err error) error { return err }
