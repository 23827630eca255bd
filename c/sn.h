// Declarations that the C files share. The functions snGo… are exported by the Go files.
#ifndef SN_H
#define SN_H

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "include/socknotify.h"

// Handles. A descriptor is its own handle. Others have a kind and an index below and a generation above, so that a handle
// that was closed is not mistaken for a later one. Their two lowest bits are 0 and belong to the program, as on Windows: bit 0
// of hEvent says that a completion is not queued. A call ignores them.
#define SN_TAG_MASK 3u
#define SN_INDEX_SHIFT 2
#define SN_KIND_SHIFT 28
#define SN_KIND_PORT 4
#define SN_KIND_THREAD 5
#define SN_KIND_EVENT 6
#define SN_INDEX_MASK 0x3ffffff // after the shift
#define SN_GENERATION_SHIFT 32

static inline unsigned sn_kind(HANDLE h) { return (uint32_t)(uintptr_t)h >> SN_KIND_SHIFT; }
// 0, which is NULL, is no handle: a handle that was never set must not be the standard input.
static inline bool sn_is_descriptor(HANDLE h) { return h != NULL && (uintptr_t)h < (uintptr_t)1 << SN_KIND_SHIFT; }

// sn_errno_own is the value of errno while the thread's last error is one of this library. Any other value of errno is the
// error of a call of the C library.
#define sn_errno_own 0x534e

// sn_fail sets the last error. It returns FALSE.
BOOL sn_fail(DWORD error);
// sn_fail_socket sets the last error. It returns SOCKET_ERROR.
int sn_fail_socket(DWORD error);

// sn_of_errno returns the Windows error of an errno.
DWORD sn_of_errno(int e);

// sn_status_of returns the status of an operation that has failed with an error of Windows, and
// sn_of_status what GetLastError gives for it.
uint32_t sn_status_of(DWORD error);
DWORD sn_of_status(ULONG_PTR status);

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
// sn_connecting reports whether the program has begun to connect by a call that did not block.
bool sn_connecting(SOCKET s);
void sn_set_connecting(SOCKET s);

// sn_ended returns why a call cannot receive any more, where the system would say that it is the end
// of the stream, or 0. sn_broken returns the error of a send for EPIPE: the direction was shut, the
// peer has reset the connection, or there was none.
DWORD sn_ended(SOCKET s);
DWORD sn_broken(SOCKET s);

// sn_await is poll with a deadline that may be NULL. fds has room for one element more than count.
// The result is also SN_CLOSED if closesocket was called for one of the sockets.
#define SN_CLOSED (-2)
int sn_await(struct pollfd *fds, nfds_t count, const struct timespec *until);
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
// sn_forget_waiters is called in a child after fork, which has no other threads.
void sn_forget_waiters(void);

// sn_post posts, from a signal handler, too. sn_take_posts passes the posts of handlers to their
// ports. sn_wake_all makes the threads that wait for ports call it.
DWORD sn_post(HANDLE port, DWORD bytes, ULONG_PTR key, uintptr_t overlapped);
void sn_take_posts(void);
void sn_wake_all(void);

// sn_alert returns the thread's eventfd, or -1.
int sn_alert(void);
// sn_after returns the time after a number of nanoseconds. sn_left returns the time until then, or
// false if it has passed.
struct timespec sn_after(uint64_t nanoseconds);
bool sn_left(const struct timespec *until, struct timespec *t);

// sn_keep_alive is WSAIoctl with SIO_KEEPALIVE_VALS.
int sn_keep_alive(SOCKET s, const void *values, DWORD size);

// sn_message receives or sends, as sn_recv and sn_send do.
ssize_t sn_message(SOCKET s, struct msghdr *m, int flags, bool sends);

// sn_close_object closes the handle of a thread or an event. It returns FALSE if the handle is
// neither's.
BOOL sn_close_object(HANDLE h);

// sn_signal sets an event, for the end of an operation.
void sn_signal(uintptr_t event);

// SN_WAIT is what snGoProcess and snGoWait return if the thread must wait; it is no Windows error.
#define SN_WAIT 0x80000001u

// sn_completed wakes the threads in sn_GetOverlappedResult. sn_waiting is their number, which Go
// reads, too.
void sn_completed(void);
extern int32_t sn_waiting;

#endif
