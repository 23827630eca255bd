// Package fakepsn is a pretend Windows for tests of package psn: ProcessSocketNotifications and
// completion ports over Linux sockets.
//
// It is written from the reference pages of ProcessSocketNotifications, SOCK_NOTIFY_REGISTRATION and
// SocketNotificationRetrieveEvents and from "Winsock socket state notifications", not from package psn.
// Where these are silent, or say two things, Quirks chooses, so that a backend which passes with any choice
// depends on none. What Windows really chooses it cannot tell.
//
// A packet is queued when its condition begins to hold, by a goroutine of each port, and is not taken back
// when that ends. A closed descriptor ends its registration, which is noticed at the next occasion: the
// socket's cookie tells it from the next one of the same number.
//
// It differs from a real kernel in edges. A condition that ends and begins again between two looks at the
// socket makes none.
package fakepsn
