//go:build !windows

package socknotify

const onWine = false
