// Package fakepsn is a simulated Windows for tests of package psn: ProcessSocketNotifications and
// completion ports over Linux sockets.
//
// It is written from the reference pages of ProcessSocketNotifications, SOCK_NOTIFY_REGISTRATION and
// SocketNotificationRetrieveEvents and from "Winsock socket state notifications", not from package psn.
// If these leave a behaviour open or contradict each other, Quirks chooses. A backend that passes with every
// choice depends on none. The package does not show which choice Windows makes.
//
// A goroutine of each port queues a packet when its condition begins to hold. The packet is not withdrawn
// when the condition ends. A closed descriptor ends its registration, which is noticed the next time that
// the registration is used: the socket's cookie distinguishes it from the next socket with the same number.
//
// Edges differ from those of a real kernel. A condition that ends and begins again between two polls of the
// socket makes none.
package fakepsn
