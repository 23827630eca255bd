// What the folder win32 uses of this layer besides the public header. The C files of this folder use nothing of win32: it
// gives them the functions of its objects when it is loaded.
#ifndef SN_LAYER_H
#define SN_LAYER_H

#include <errno.h>
#include <poll.h>
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

// sn_descriptor returns a socket's descriptor, or -1 for a number that is none. A conversion to int could make it another's.
static inline int sn_descriptor(SOCKET s) { return s <= 0x7fffffff ? (int)s : -1; }

// An sn_objects has what this layer needs of the handles that are neither descriptors nor ports.
struct sn_objects {
	// close closes a handle. It returns false if there is no such object.
	bool (*close)(HANDLE h);
	// set gives an event a state. It returns false if the handle is no event's. Any thread may call it.
	bool (*set)(HANDLE event, bool signaled);
	// wake makes the threads that wait for objects look again.
	void (*wake)(void);
};
// sn_use_objects is called once, before main. Without it there are no objects.
void sn_use_objects(const struct sn_objects *functions);

// A thread has a routine while an operation that it has begun with a completion routine has completed, and the routine was not
// called. A wait that is alertable ends then. sn_run_routines calls the routines, without a lock.
bool sn_has_routines(void);
void sn_run_routines(void);

// A watcher learns of the calls on the sockets for which sn_watch is on. sn_closesocket turns it off.
enum sn_call { SN_RECEIVED, SN_WOULD_SEND, SN_ACCEPTED, SN_CONNECTED_LATER };
struct sn_watcher {
	// called is called after a call that has received; that would have blocked, and sends; that has accepted, with the new
	// socket, or INVALID_SOCKET; and that has begun to connect. It may change errno and the last error.
	void (*called)(SOCKET s, enum sn_call call, SOCKET accepted);
	// closing is called before the socket is closed.
	void (*closing)(SOCKET s);
};
// sn_use_watcher is called once, before main.
void sn_use_watcher(const struct sn_watcher *functions);
// sn_watch returns false for a number that is too large. sn_is_watched reports whether a watcher learns of calls.
bool sn_watch(SOCKET s, bool on);
bool sn_is_watched(SOCKET s);

// sn_fail sets the last error. It returns FALSE.
BOOL sn_fail(DWORD error);
// sn_fail_socket sets the last error. It returns SOCKET_ERROR.
int sn_fail_socket(DWORD error);
// sn_of_errno returns the Windows error of an errno.
DWORD sn_of_errno(int e);

// sn_await is poll with a deadline that may be NULL. fds has room for one element more than count.
// The result is also SN_CLOSED if closesocket was called for one of the sockets.
#define SN_CLOSED (-2)
int sn_await(struct pollfd *fds, nfds_t count, const struct timespec *until);
// sn_connect_failed reports whether the program has begun to connect by a call that did not block, and that has failed.
bool sn_connect_failed(SOCKET s);
// sn_connecting reports whether the program has begun to connect by a call that did not block.
bool sn_connecting(SOCKET s);

// sn_after returns the time after a number of nanoseconds. sn_left returns the time until then, or
// false if it has passed.
struct timespec sn_after(uint64_t nanoseconds);
bool sn_left(const struct timespec *until, struct timespec *t);

#endif
