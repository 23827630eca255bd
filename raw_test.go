package socknotify

// enableHandle is Enable of a raw handle.
func enableHandle[K comparable](h uintptr, key K, filter Events, trigger Trigger) Registration[K] {
	return Registration[K]{Handle: h, Key: key, Filter: filter, Op: OpEnable, Trigger: trigger}
}

// disableHandle is Disable of a raw handle.
func disableHandle[K comparable](h uintptr) Registration[K] {
	return Registration[K]{Handle: h, Op: OpDisable}
}

// removeHandle is Remove of a raw handle.
func removeHandle[K comparable](h uintptr) Registration[K] {
	return Registration[K]{Handle: h, Op: OpRemove}
}
