#define _GNU_SOURCE
#include "sn.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

// What is known of a descriptor, for as many as a process usually has.
#define KEPT (1 << 20)
static _Atomic uint16_t known[KEPT];

enum {
	// The program's calls on the socket block, which is the default, although its descriptor does
	// not: it has overlapped operations, or a blocking accept was called.
	BLOCKS = 1,
	// The program has made the socket non-blocking by ioctlsocket.
	NONBLOCKING = 2,
	// A thread waits for the socket.
	AWAITED = 4,
	// closesocket is at work. BLOCKS and NONBLOCKING are forgotten, and the socket may still be open.
	CLOSING = 8,
	// The program has shut a direction down, and the peer has reset the connection.
	ENDED_SEND = 16,
	ENDED_RECEIVE = 32,
	RESET = 64,
	// The program has begun to connect, and its call did not block.
	CONNECTING = 128,
	// The watcher learns of calls on the socket.
	WATCHED = 256,
};

// The seconds of the monotonic clock at which a descriptor became a connection.
static _Atomic uint32_t connected[KEPT];

static const struct sn_watcher *watcher; // NULL if there is none; written before main

static bool is_kept(SOCKET s) { return s < KEPT; }

static bool is(SOCKET s, uint16_t what)
{
	return is_kept(s) && (atomic_load_explicit(&known[s], memory_order_relaxed) & what) != 0;
}

static void set(SOCKET s, uint16_t what, bool on)
{
	if (!is_kept(s))
		return;
	if (on)
		atomic_fetch_or(&known[s], what);
	else
		atomic_fetch_and(&known[s], (uint16_t)~what);
}

bool sn_has_ended(SOCKET s, bool sends) { return is(s, sends ? ENDED_SEND : ENDED_RECEIVE); }

bool sn_was_reset(SOCKET s) { return is(s, RESET); }

bool sn_may_receive(SOCKET s) { return !is(s, ENDED_RECEIVE | RESET); }

void sn_set_ended(SOCKET s, bool sends, bool on) { set(s, sends ? ENDED_SEND : ENDED_RECEIVE, on); }

bool sn_connecting(SOCKET s) { return is(s, CONNECTING); }

void sn_set_connecting(SOCKET s) { set(s, CONNECTING, true); }

void sn_set_connected(SOCKET s)
{
	if (is_kept(s))
		atomic_store_explicit(&connected[s], (uint32_t)sn_after(0).tv_sec, memory_order_relaxed);
}

DWORD sn_connect_time(SOCKET s)
{
	return is_kept(s) ? (uint32_t)sn_after(0).tv_sec - atomic_load(&connected[s]) : 0;
}

void sn_use_watcher(const struct sn_watcher *functions) { watcher = functions; }

bool sn_watch(SOCKET s, bool on)
{
	set(s, WATCHED, on);
	return is_kept(s);
}

bool sn_is_watched(SOCKET s) { return is(s, WATCHED); }

void sn_called(SOCKET s, enum sn_call call, SOCKET accepted)
{
	if (!is(s, WATCHED) || atomic_load(&sn_forked))
		return;
	DWORD error = sn_GetLastError();
	int number = errno;
	watcher->called(s, call, accepted);
	if (number == sn_errno_own)
		sn_SetLastError(error);
	else
		errno = number;
}

void sn_set_reset(SOCKET s, bool on) { set(s, RESET, on); }

void sn_set_blocking(SOCKET s, bool on)
{
	set(s, BLOCKS, on);
	set(s, NONBLOCKING, false);
}

void sn_set_nonblocking(SOCKET s)
{
	set(s, BLOCKS, false);
	set(s, NONBLOCKING, true);
}

bool sn_blocking(SOCKET s) { return is(s, BLOCKS); }

bool sn_blocks(SOCKET s)
{
	if (is(s, BLOCKS | NONBLOCKING))
		return is(s, BLOCKS);
	int flags = fcntl((int)s, F_GETFL);
	return flags >= 0 && (flags & O_NONBLOCK) == 0;
}

// A waiter is a thread that waits for sockets. It is woken when one of them is closed, which poll
// alone does not notice.
//
// No wake-up is lost. A waiter sets AWAITED before it polls. closesocket looks for AWAITED before
// it closes, and after: a waiter that comes in between polls again, and finds the descriptor
// closed.
struct waiter {
	struct pollfd *fds; // count of sockets, and one for the thread's alert
	nfds_t count;
	bool closed;
	struct waiter *next;
	// The socket's flags, which are set again when the wait is over, or -1.
	int flags;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct waiter *waiters; // guarded by lock

void sn_unblock_listener(SOCKET s)
{
	int flags, listens = 0;
	socklen_t size = sizeof listens;
	if (is(s, BLOCKS | NONBLOCKING) || !is_kept(s) ||
		getsockopt((int)s, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens)
		return;
	pthread_mutex_lock(&lock); // another thread's first accept may change the flags
	if (is(s, BLOCKS | NONBLOCKING) || (flags = fcntl((int)s, F_GETFL)) < 0)
		;
	else if ((flags & O_NONBLOCK) != 0)
		set(s, NONBLOCKING, true);
	else if (fcntl((int)s, F_SETFL, flags | O_NONBLOCK) == 0)
		set(s, BLOCKS, true);
	pthread_mutex_unlock(&lock);
}

static bool waits_for(const struct waiter *w, int fd)
{
	for (nfds_t i = 0; i < w->count; i++)
		if (w->fds[i].fd == fd)
			return true;
	return false;
}

static bool is_awaited(int fd)
{
	for (struct waiter *w = waiters; w != NULL; w = w->next)
		if (waits_for(w, fd))
			return true;
	return false;
}

static void enter(struct waiter *w)
{
	w->fds[w->count] = (struct pollfd){sn_alert(), POLLIN, 0};
	pthread_mutex_lock(&lock);
	w->next = waiters;
	waiters = w;
	for (nfds_t i = 0; i < w->count; i++)
		set((SOCKET)w->fds[i].fd, AWAITED, true);
	pthread_mutex_unlock(&lock);
}

static void leave(void *of)
{
	struct waiter *w = of, **at = &waiters;
	pthread_mutex_lock(&lock);
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	for (nfds_t i = 0; i < w->count; i++)
		if (!is_awaited(w->fds[i].fd))
			set((SOCKET)w->fds[i].fd, AWAITED, false);
	if (w->flags >= 0 && !w->closed)
		fcntl(w->fds[0].fd, F_SETFL, w->flags);
	pthread_mutex_unlock(&lock);
}

// wake wakes the threads that wait for a socket.
static void wake(SOCKET s, bool closed)
{
	if (atomic_load(&sn_forked) || (is_kept(s) && (atomic_load(&known[s]) & AWAITED) == 0))
		return;
	pthread_mutex_lock(&lock);
	for (struct waiter *w = waiters; w != NULL; w = w->next)
		if (waits_for(w, (int)s)) {
			w->closed |= closed;
			(void)!write(w->fds[w->count].fd, &(uint64_t){1}, sizeof(uint64_t));
		}
	pthread_mutex_unlock(&lock);
}

// A child after fork has no other threads.
static void child(void)
{
	pthread_mutex_init(&lock, NULL);
	waiters = NULL;
}

__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, child); }

void sn_closing(SOCKET s)
{
	if (is(s, WATCHED)) {
		if (!atomic_load(&sn_forked))
			watcher->closing(s);
		set(s, WATCHED, false);
	}
	wake(s, true);
	set(s, CLOSING, true);
	set(s, BLOCKS | NONBLOCKING | ENDED_SEND | ENDED_RECEIVE | RESET | CONNECTING, false);
}

void sn_closed(SOCKET s)
{
	set(s, CLOSING | ENDED_SEND | ENDED_RECEIVE | RESET | CONNECTING, false); // a call in another thread may have set them
	wake(s, false);
}

bool sn_was_closed(SOCKET s)
{
	if (is(s, BLOCKS | NONBLOCKING))
		return false;
	while (is(s, CLOSING) && fcntl((int)s, F_GETFL) >= 0)
		sched_yield();
	return fcntl((int)s, F_GETFL) < 0;
}

static bool was_closed(struct waiter *w)
{
	pthread_mutex_lock(&lock);
	bool closed = w->closed;
	pthread_mutex_unlock(&lock);
	return closed;
}

// restarts reports whether a call that a signal has interrupted goes on. The program has said so
// for all of its handlers, or the call ends, because it is not known which of them has run.
static bool restarts(void)
{
	for (int n = 1; n < NSIG; n++) {
		struct sigaction a;
		if (sigaction(n, NULL, &a) == 0 && a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN &&
			(a.sa_flags & SA_RESTART) == 0)
			return false;
	}
	return true;
}

static int poll_in(struct waiter *w, const struct timespec *until)
{
	struct pollfd *alert = &w->fds[w->count];
	for (;;) {
		struct timespec t;
		if (until != NULL && !sn_left(until, &t))
			return 0;
		int n = ppoll(w->fds, w->count + 1, until != NULL ? &t : NULL, NULL);
		if (n < 0 && errno == EINTR && restarts())
			continue;
		if (n > 0 && alert->revents != 0) {
			uint64_t drained;
			(void)!read(alert->fd, &drained, sizeof drained);
			if (was_closed(w))
				return SN_CLOSED;
			if (--n == 0)
				continue; // it was from before, or for a thread that began to wait too late
		}
		if (n != 0)
			return n;
	}
}

int sn_await(struct pollfd *fds, nfds_t count, const struct timespec *until)
{
	struct waiter w = {.fds = fds, .count = count, .flags = -1};
	int n;
	enter(&w);
	pthread_cleanup_push(leave, &w);
	n = poll_in(&w, until);
	pthread_cleanup_pop(1);
	return n;
}

int sn_await_connect(int fd, const struct sockaddr *name, socklen_t length, int flags,
	const struct timespec *until)
{
	struct pollfd fds[2] = {{fd, POLLOUT, 0}};
	struct waiter w = {.fds = fds, .count = 1, .flags = flags};
	int n = 1;
	enter(&w);
	pthread_cleanup_push(leave, &w);
	if ((flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) || connect(fd, name, length) < 0)
		n = errno == EINPROGRESS ? poll_in(&w, until) : -1;
	else
		n = SN_CONNECTED;
	pthread_cleanup_pop(1);
	return n;
}
