package fdstate

import "golang.org/x/sys/windows"

func closeHandle(h uintptr) error { return windows.Closesocket(windows.Handle(h)) }
