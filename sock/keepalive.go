//go:build unix || windows

package sock

import (
	"errors"
	"math"
	"net"
	"time"
)

func sysKeepAlive(h uintptr, c net.KeepAliveConfig) error {
	if err := setKeepAlive(h, c.Enable); err != nil || !c.Enable {
		return err
	}
	// 0 means package net's default.
	for _, o := range [...]struct {
		option, value, unset int
	}{
		{keepIdle, seconds(c.Idle), 15},
		{keepInterval, seconds(c.Interval), 15},
		{keepCount, c.Count, 9},
	} {
		if o.value == 0 {
			o.value = o.unset
		}
		if o.value < 0 {
			continue
		}
		if o.option == 0 {
			return errors.ErrUnsupported
		}
		if err := setTCP(h, o.option, o.value); err != nil {
			return err
		}
	}
	return nil
}

func sysGetKeepAlive(h uintptr) (c net.KeepAliveConfig, err error) {
	if c.Enable, err = hasKeepAlive(h); err != nil {
		return c, err
	}
	var values [3]int
	for i, option := range [...]int{keepIdle, keepInterval, keepCount} {
		if option == 0 {
			continue
		}
		if values[i], err = getTCP(h, option); err != nil && err != errors.ErrUnsupported {
			return c, err
		}
	}
	c.Idle, c.Interval, c.Count = time.Duration(values[0])*time.Second, time.Duration(values[1])*time.Second, values[2]
	return c, nil
}

// seconds converts d to seconds, rounded up, and to as many as the option has room for. It returns
// -1 for a negative d.
func seconds(d time.Duration) int {
	if d <= 0 {
		return int(max(d, -1))
	}
	return int(min((d-1)/time.Second+1, math.MaxInt32))
}
