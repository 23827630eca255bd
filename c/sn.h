// Declarations that the C files of this folder share. The functions snGo… are exported by the Go files.
#ifndef SN_H
#define SN_H

#include <stdatomic.h>

#include "layer.h"

// sn_errno_own is the value of errno while the thread's last error is one of this library. Any other value of errno is the
// error of a call of the C library.
#define sn_errno_own 0x534e

// sn_status_of returns the status of an operation that has failed with an error of Windows, and
// sn_of_status what GetLastError gives for it, or WSAGetLastError.
uint32_t sn_status_of(DWORD error);
DWORD sn_of_status(ULONG_PTR status, bool of_socket);

// sn_forked is set in a child after fork, where Go's runtime does not run.
extern atomic_bool sn_forked;

// sn_edgeless is set once there is a port whose backend has no edges.
extern atomic_bool sn_edgeless;
void sn_set_edgeless(void);

// sn_blocks reports whether the program's calls on a socket block. sn_blocking reports whether they
// do although its descriptor does not.
bool sn_blocks(SOCKET s);
bool sn_blocking(SOCKET s);
void sn_set_blocking(SOCKET s, bool blocking);
// sn_set_nonblocking is called when the program has made a socket non-blocking.
void sn_set_nonblocking(SOCKET s);
// sn_unblock_listener makes the descriptor of a listener non-blocking, and sn_blocking true,
// because a thread in accept(2) could not be woken.
void sn_unblock_listener(SOCKET s);

// What is known of a connection: the program has shut a direction down, or the peer has reset it.
// sn_may_receive is true while neither ends receives.
bool sn_has_ended(SOCKET s, bool sends);
bool sn_was_reset(SOCKET s);
bool sn_may_receive(SOCKET s);
void sn_set_ended(SOCKET s, bool sends, bool on);
void sn_set_reset(SOCKET s, bool on);
void sn_set_connecting(SOCKET s);
// sn_set_connected notes the time at which a socket becomes a connection, and sn_connect_time returns the seconds since then.
void sn_set_connected(SOCKET s);
DWORD sn_connect_time(SOCKET s);
// sn_called tells the watcher of a call on a socket.
void sn_called(SOCKET s, enum sn_call call, SOCKET accepted);

// sn_ended returns why a call cannot receive any more, where the system would say that it is the end
// of the stream, or 0. sn_broken returns the error of a send for EPIPE: the direction was shut, the
// peer has reset the connection, or there was none.
DWORD sn_ended(SOCKET s);
DWORD sn_broken(SOCKET s);

// sn_await_connect connects, and waits for that. flags are those of a descriptor that blocks, or
// -1. The result is that of sn_await, or SN_CONNECTED.
#define SN_CONNECTED (-3)
int sn_await_connect(int fd, const struct sockaddr *name, socklen_t length, int flags,
	const struct timespec *until);
// sn_closing is called before a socket is closed, and sn_closed after.
void sn_closing(SOCKET s);
void sn_closed(SOCKET s);

// sn_was_closed says for a call that would have blocked, on a socket whose calls do not block as far
// as is known, whether that is so because closesocket has begun. It waits until that has closed the
// socket.
bool sn_was_closed(SOCKET s);

// sn_post posts, from a signal handler, too. sn_take_posts passes the posts of handlers to their
// ports. sn_wake_all makes the threads that wait for ports call it.
DWORD sn_post(HANDLE port, DWORD bytes, ULONG_PTR key, uintptr_t overlapped);
void sn_take_posts(void);
void sn_wake_all(void);

// An alert is the eventfd(2) by which Go wakes a thread. sn_get_alert returns the thread's, or NULL if the system lacks
// descriptors or memory. sn_alert returns its descriptor, or -1.
struct sn_alert {
	int fd;
	uint32_t id;
	struct sn_alert *next; // of those that no thread has
};
const struct sn_alert *sn_get_alert(void);
int sn_alert(void);
// sn_keep_alive is WSAIoctl with SIO_KEEPALIVE_VALS.
int sn_keep_alive(SOCKET s, const void *values, DWORD size);

bool sn_is_stream(SOCKET s);

// sn_message receives or sends, as sn_recv and sn_send do.
ssize_t sn_message(SOCKET s, struct msghdr *m, int flags, bool sends);

// sn_reset resets an event, for the start of an operation. It returns false if the handle is no event's. sn_signal sets one,
// for the end, and keeps errno.
bool sn_reset(HANDLE event);
void sn_signal(uintptr_t event);

// sn_wake_waits makes the threads that wait for objects look again.
void sn_wake_waits(void);

// An sn_routine is a completion routine of an operation. sn_begin_routine returns NULL if there is no memory. Afterwards either
// sn_drop_routine is called, because the operation was not begun, or sn_complete_routine.
struct sn_routine;
struct sn_routine *sn_begin_routine(LPWSAOVERLAPPED_COMPLETION_ROUTINE function, LPOVERLAPPED overlapped);
void sn_drop_routine(struct sn_routine *r);
void sn_complete_routine(uintptr_t routine, ULONG_PTR status, DWORD bytes);

// SN_WAIT is what snGoProcess and snGoWait return if the thread must wait; it is no Windows error.
#define SN_WAIT 0x80000001u

// sn_completed wakes the threads in sn_GetOverlappedResult. sn_waiting is their number, which Go
// reads, too.
void sn_completed(void);
extern int32_t sn_waiting;

#endif
