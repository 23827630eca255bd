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
// A receive from an associated socket is carried out when data arrives, by the same goroutine or by the next call
// on the port. The system below shows an error once, so a receive that gets one takes it from later calls. The
// receives from a closed socket end when they are canceled, or when its number is used again.
//
// Edges differ from those of a real kernel. A condition that ends and begins again between two polls of the
// socket makes none.
package fakepsn
