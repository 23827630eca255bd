package socknotify

import "golang.org/x/sys/windows"

// onWine says that Wine imitates Windows.
var onWine = windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
