#define _GNU_SOURCE
#include "sn.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "_cgo_export.h"

// A socket with overlapped operations has a descriptor that does not block. Whether the program's calls on it block, which
// is the default, is kept here: a bit per descriptor, for as many as a process usually has.
#define KEPT (1 << 20)
static _Atomic uint8_t blocking[KEPT / 8];

atomic_bool sn_edgeless;

void sn_set_edgeless(void) { atomic_store(&sn_edgeless, true); }

static bool is_kept(SOCKET s) { return s < KEPT; }

bool sn_blocking(SOCKET s)
{
	return is_kept(s) && (atomic_load_explicit(&blocking[s / 8], memory_order_relaxed) & 1 << s % 8) != 0;
}

void sn_set_blocking(SOCKET s, bool on)
{
	if (!is_kept(s))
		return;
	if (on)
		atomic_fetch_or(&blocking[s / 8], (uint8_t)(1 << s % 8));
	else
		atomic_fetch_and(&blocking[s / 8], (uint8_t) ~(1 << s % 8));
}

// again is called for a call that would have blocked. It waits if the program's calls on the socket block, and returns
// true. Otherwise it re-arms edges where the backend has none.
static bool again(SOCKET s, short events, int flags)
{
	if (!(flags & MSG_DONTWAIT) && sn_blocking(s)) {
		struct pollfd p = {(int)s, events, 0};
		while (ppoll(&p, 1, NULL, NULL) < 0 && errno == EINTR) {
		}
		return true;
	}
	if (atomic_load_explicit(&sn_edgeless, memory_order_relaxed) && !atomic_load_explicit(&sn_forked, memory_order_relaxed))
		snGoBlocked((int)s, events == POLLIN);
	errno = EAGAIN;
	return false;
}

// descriptor returns a socket's descriptor, or -1 for a number that is none. A conversion to int could make it another's.
static int descriptor(SOCKET s) { return s <= 0x7fffffff ? (int)s : -1; }

#define RETRY(result, call, s, events, flags) \
	do \
		result = call; \
	while (result < 0 && errno == EAGAIN && again(s, events, flags))

SOCKET sn_accept(SOCKET s, struct sockaddr *address, socklen_t *length)
{
	int fd;
	RETRY(fd, accept(descriptor(s), address, length), s, POLLIN, 0);
	if (fd >= 0)
		sn_set_blocking((SOCKET)fd, false);
	return (SOCKET)(LONG_PTR)fd;
}

static size_t size(int length) { return length < 0 ? 0 : (size_t)length; }

int sn_recv(SOCKET s, void *buffer, int length, int flags)
{
	ssize_t n;
	RETRY(n, recv(descriptor(s), buffer, size(length), flags), s, POLLIN, flags);
	return (int)n;
}

int sn_recvfrom(SOCKET s, void *buffer, int length, int flags, struct sockaddr *from, socklen_t *fromLength)
{
	ssize_t n;
	RETRY(n, recvfrom(descriptor(s), buffer, size(length), flags, from, fromLength), s, POLLIN, flags);
	return (int)n;
}

int sn_send(SOCKET s, const void *buffer, int length, int flags)
{
	ssize_t n;
	RETRY(n, send(descriptor(s), buffer, size(length), flags | MSG_NOSIGNAL), s, POLLOUT, flags);
	return (int)n;
}

int sn_sendto(SOCKET s, const void *buffer, int length, int flags, const struct sockaddr *to, socklen_t toLength)
{
	ssize_t n;
	RETRY(n, sendto(descriptor(s), buffer, size(length), flags | MSG_NOSIGNAL, to, toLength), s, POLLOUT, flags);
	return (int)n;
}

ssize_t sn_message(SOCKET s, struct msghdr *m, int flags, bool sends)
{
	ssize_t n;
	if (sends)
		RETRY(n, sendmsg(descriptor(s), m, flags | MSG_NOSIGNAL), s, POLLOUT, flags);
	else
		RETRY(n, recvmsg(descriptor(s), m, flags), s, POLLIN, flags);
	return n;
}

int sn_connect(SOCKET s, const struct sockaddr *name, socklen_t length)
{
	int fd = descriptor(s), error;
	socklen_t size = sizeof error;
	if (connect(fd, name, length) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return SOCKET_ERROR;
	if (!sn_blocking(s))
		return sn_fail_socket(WSAEWOULDBLOCK);
	again(s, POLLOUT, 0);
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
		return SOCKET_ERROR;
	errno = error;
	return error == 0 ? 0 : SOCKET_ERROR;
}

int sn_closesocket(SOCKET s)
{
	int fd = descriptor(s);
	sn_set_blocking(s, false);
	if (fd >= 0 && !atomic_load(&sn_forked) && snGoClosing(fd))
		return 0; // Go has closed it
	return close(fd) == 0 || errno == EINTR ? 0 : SOCKET_ERROR;
}

int sn_ioctlsocket(SOCKET s, long command, void *argument)
{
	int fd = descriptor(s), value;
	if (argument == NULL)
		return sn_fail_socket(WSAEFAULT);
	switch (command) {
	case FIONBIO:
		value = *(DWORD *)argument != 0;
		if (!atomic_load(&sn_forked) && snGoOperates(fd)) {
			sn_set_blocking(s, !value);
			return 0;
		}
		return ioctl(fd, FIONBIO, &value);
	case FIONREAD:
		if (ioctl(fd, FIONREAD, &value) != 0)
			return SOCKET_ERROR;
		*(DWORD *)argument = (DWORD)value;
		return 0;
	}
	return sn_fail_socket(WSAEOPNOTSUPP);
}
