#define _GNU_SOURCE
#include "sn.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "_cgo_export.h"

atomic_bool sn_edgeless;

#define TCP_CLOSED 7 // TCP_CLOSE of a header that linux/tcp.h excludes

void sn_set_edgeless(void) { atomic_store(&sn_edgeless, true); }

// deadline returns when a call on a socket times out, or NULL.
static struct timespec *deadline(SOCKET s, short events, struct timespec *at)
{
	struct timeval t = {0, 0};
	socklen_t size = sizeof t;
	int option = events == POLLIN ? SO_RCVTIMEO : SO_SNDTIMEO;
	if (getsockopt((int)s, SOL_SOCKET, option, &t, &size) != 0 || (t.tv_sec == 0 && t.tv_usec == 0))
		return NULL;
	*at = sn_after((uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_usec * 1000);
	return at;
}

// awaited returns true after a wait for a socket that is ready, and otherwise sets the error.
static bool awaited(int n)
{
	if (n == SN_CLOSED)
		sn_fail_socket(WSAEINTR);
	else if (n == 0)
		errno = ETIMEDOUT;
	return n > 0;
}

// again is called for a call that would have blocked. It waits if the program's calls on the socket
// block, and returns true if the call should be made again. Otherwise it re-arms edges where the
// backend has none. A send on a descriptor that blocks has timed out.
static bool again(SOCKET s, short events, int flags)
{
	if (!(flags & MSG_DONTWAIT) && (events == POLLIN ? sn_blocks(s) : sn_blocking(s))) {
		struct pollfd fds[2] = {{(int)s, events, 0}};
		struct timespec at;
		return awaited(sn_await(fds, 1, deadline(s, events, &at)));
	}
	if (sn_was_closed(s)) {
		errno = EBADF;
		return false;
	}
	if (events == POLLOUT)
		sn_called(s, SN_WOULD_SEND, INVALID_SOCKET);
	if (atomic_load_explicit(&sn_edgeless, memory_order_relaxed) && !atomic_load_explicit(&sn_forked, memory_order_relaxed))
		snGoBlocked((int)s, events == POLLIN);
	errno = EAGAIN;
	return false;
}

// moved is called when a call has moved n bytes of a buffer. Fewer than it has room for may have
// drained the socket, or filled it, so that an edge re-arms.
static void moved(SOCKET s, short events, ssize_t n, size_t size)
{
	if (n > 0 && (size_t)n < size && atomic_load_explicit(&sn_edgeless, memory_order_relaxed) &&
		!atomic_load_explicit(&sn_forked, memory_order_relaxed))
		snGoBlocked((int)s, events == POLLIN);
}

// tcp_info returns what is known of a TCP connection; tcpi_segs_in is 0 if there was never one, or
// the socket is none of TCP.
static struct tcp_info tcp_info(SOCKET s)
{
	struct tcp_info info = {0};
	socklen_t size = sizeof info;
	if (getsockopt((int)s, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
		info.tcpi_segs_in = 0;
	return info;
}

// What is noted of a socket may be of an earlier one with its number, which another thread has closed
// while a call on it was at work. So the system is asked, too.
DWORD sn_ended(SOCKET s)
{
	if (sn_may_receive(s))
		return 0;
	struct pollfd p = {sn_descriptor(s), POLLRDHUP, 0};
	if (sn_has_ended(s, false) && poll(&p, 1, 0) > 0 && (p.revents & POLLRDHUP))
		return WSAESHUTDOWN;
	sn_set_ended(s, false, false);
	if (sn_was_reset(s)) {
		struct tcp_info info = tcp_info(s);
		if (info.tcpi_segs_in > 0 && info.tcpi_state == TCP_CLOSED)
			return WSAECONNRESET;
		sn_set_reset(s, false);
	}
	return 0;
}

DWORD sn_broken(SOCKET s)
{
	if (sn_has_ended(s, true))
		return WSAESHUTDOWN;
	int type = 0;
	socklen_t size = sizeof type;
	bool tcp = getsockopt((int)s, SOL_SOCKET, SO_PROTOCOL, &type, &size) == 0 && type == IPPROTO_TCP;
	if (tcp && tcp_info(s).tcpi_segs_in == 0)
		return WSAENOTCONN;
	sn_set_reset(s, true);
	return WSAECONNRESET;
}

bool sn_connect_failed(SOCKET s)
{
	if (!sn_connecting(s))
		return false;
	struct tcp_info info = tcp_info(s);
	return info.tcpi_state == TCP_CLOSED && info.tcpi_bytes_acked == 0; // not even a SYN
}

// over reports whether a call cannot receive any more, and then sets the error.
static bool over(SOCKET s)
{
	DWORD error = sn_ended(s);
	if (error != 0)
		sn_fail_socket(error);
	return error != 0;
}

// failed sets the error of a call that has failed, where errno alone does not say it.
static ssize_t failed(SOCKET s, ssize_t n)
{
	if (n < 0 && errno == EPIPE)
		return sn_fail_socket(sn_broken(s));
	if (n < 0 && errno == ECONNRESET)
		sn_set_reset(s, true);
	return n;
}

#define RETRY(result, call, s, events, flags) \
	do \
		result = call; \
	while (result < 0 && errno == EAGAIN && again(s, events, flags))

SOCKET sn_socket(int family, int type, int protocol)
{
	int fd = socket(family, type, protocol);
	if (fd < 0 && errno == EINVAL) // for a type that is unknown
		return (SOCKET)(LONG_PTR)sn_fail_socket(WSAESOCKTNOSUPPORT);
	if (fd >= 0 && family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){1}, sizeof(int)); // the default on Windows
	return (SOCKET)(LONG_PTR)fd;
}

SOCKET sn_accept(SOCKET s, struct sockaddr *address, socklen_t *length)
{
	int fd;
	sn_unblock_listener(s);
	RETRY(fd, accept(sn_descriptor(s), address, length), s, POLLIN, 0);
	SOCKET made = (SOCKET)(LONG_PTR)fd;
	if (fd >= 0) {
		sn_set_blocking(made, false);
		sn_set_connected(made);
	}
	sn_called(s, SN_ACCEPTED, made);
	return made;
}

static size_t size(int length) { return length < 0 ? 0 : (size_t)length; }

bool sn_is_stream(SOCKET s)
{
	int type = 0;
	socklen_t length = sizeof type;
	return getsockopt((int)s, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

// The calls that receive do not block in the system, where closesocket could not wake them.
static int receive(SOCKET s, void *buffer, int length, int flags)
{
	int got = 0;
	if (over(s))
		return SOCKET_ERROR;
	bool all = (flags & MSG_WAITALL) && !(flags & (MSG_PEEK | MSG_DONTWAIT)) && sn_is_stream(s) &&
		sn_blocks(s);
	for (;;) {
		ssize_t n;
		char *to = (char *)buffer + got;
		size_t left = size(length - got);
		RETRY(n, recv(sn_descriptor(s), to, left, flags | MSG_DONTWAIT), s, POLLIN, flags);
		failed(s, n);
		bool closed = n < 0 && (errno == sn_errno_own || errno == EBADF);
		if (n <= 0)
			return got > 0 && !closed ? got : (int)n;
		moved(s, POLLIN, n, left);
		got += (int)n;
		if (!all || got == length)
			return got;
	}
}

int sn_recv(SOCKET s, void *buffer, int length, int flags)
{
	int n = receive(s, buffer, length, flags);
	sn_called(s, SN_RECEIVED, INVALID_SOCKET);
	return n;
}

int sn_recvfrom(SOCKET s, void *buffer, int length, int flags, struct sockaddr *from, socklen_t *fromLength)
{
	ssize_t n;
	if (over(s))
		return SOCKET_ERROR;
	RETRY(n, recvfrom(sn_descriptor(s), buffer, size(length), flags | MSG_DONTWAIT, from, fromLength),
		s, POLLIN, flags);
	moved(s, POLLIN, n, size(length));
	n = failed(s, n);
	sn_called(s, SN_RECEIVED, INVALID_SOCKET);
	return (int)n;
}

int sn_send(SOCKET s, const void *buffer, int length, int flags)
{
	ssize_t n;
	RETRY(n, send(sn_descriptor(s), buffer, size(length), flags | MSG_NOSIGNAL), s, POLLOUT, flags);
	moved(s, POLLOUT, n, size(length));
	return (int)failed(s, n);
}

int sn_sendto(SOCKET s, const void *buffer, int length, int flags, const struct sockaddr *to, socklen_t toLength)
{
	ssize_t n;
	RETRY(n, sendto(sn_descriptor(s), buffer, size(length), flags | MSG_NOSIGNAL, to, toLength), s, POLLOUT, flags);
	return (int)failed(s, n);
}

ssize_t sn_message(SOCKET s, struct msghdr *m, int flags, bool sends)
{
	ssize_t n;
	if (!sends && over(s))
		return SOCKET_ERROR;
	if (sends)
		RETRY(n, sendmsg(sn_descriptor(s), m, flags | MSG_NOSIGNAL), s, POLLOUT, flags);
	else
		RETRY(n, recvmsg(sn_descriptor(s), m, flags | MSG_DONTWAIT), s, POLLIN, flags);
	size_t total = 0;
	for (size_t i = 0; i < m->msg_iovlen; i++)
		total += m->msg_iov[i].iov_len;
	moved(s, sends ? POLLOUT : POLLIN, n, total);
	n = failed(s, n);
	if (!sends)
		sn_called(s, SN_RECEIVED, INVALID_SOCKET);
	return n;
}

int sn_connect(SOCKET s, const struct sockaddr *name, socklen_t length)
{
	int fd = sn_descriptor(s), error, flags = -1;
	socklen_t size = sizeof error;
	sn_set_connected(s);
	if (!sn_blocks(s)) {
		sn_set_connecting(s);
		int result = connect(fd, name, length);
		sn_called(s, SN_CONNECTED_LATER, INVALID_SOCKET);
		return result != 0 && errno == EINPROGRESS ? sn_fail_socket(WSAEWOULDBLOCK) : result;
	}
	if (!sn_blocking(s) && (flags = fcntl(fd, F_GETFL)) < 0)
		return SOCKET_ERROR;
	struct timespec at;
	int n = sn_await_connect(fd, name, length, flags, deadline(s, POLLOUT, &at));
	if (n == SN_CONNECTED)
		return 0;
	if (n < 0 && errno == EAGAIN)
		return connect(fd, name, length); // a Unix socket, for which no wait is possible
	if (!awaited(n) || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
		return SOCKET_ERROR;
	errno = error;
	return error == 0 ? 0 : SOCKET_ERROR;
}

// A stream may have a port that connections of an earlier server are still in TIME_WAIT on, as on
// Windows. No other socket may listen on it.
int sn_bind(SOCKET s, const struct sockaddr *name, socklen_t length)
{
	const struct sockaddr_in *in = (const void *)name; // a sockaddr_in6 begins in the same way
	bool tcp = name != NULL && length >= sizeof *in &&
		(name->sa_family == AF_INET || name->sa_family == AF_INET6) && sn_is_stream(s);
	int fd = sn_descriptor(s), yes = 1;
	if (name != NULL && length < (socklen_t)(name->sa_family == AF_INET ? sizeof *in
			: name->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0))
		return sn_fail_socket(WSAEFAULT);
	if (tcp && in->sin_port != 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	int result = bind(fd, name, length);
	if (tcp && in->sin_port == 0) // with the option the system might choose a port that is in use
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	return result;
}

SOCKET sn_WSAAccept(SOCKET s, struct sockaddr *address, int *length, void *condition,
	DWORD_PTR data)
{
	(void)data;
	if (condition != NULL) // of connections that the system has not accepted yet
		return (SOCKET)(LONG_PTR)sn_fail_socket(WSAEOPNOTSUPP);
	return sn_accept(s, address, (socklen_t *)(void *)length);
}

// It is noted before the call, so that a closesocket in another thread, which forgets it, comes after
// it, or the call fails.
int sn_shutdown(SOCKET s, int how)
{
	bool sends = how != SHUT_RD && !sn_has_ended(s, true), receives = how != SHUT_WR && !sn_has_ended(s, false);
	if (sends)
		sn_set_ended(s, true, true);
	if (receives)
		sn_set_ended(s, false, true);
	int result = shutdown(sn_descriptor(s), how);
	if (result != 0 && sends)
		sn_set_ended(s, true, false);
	if (result != 0 && receives)
		sn_set_ended(s, false, false);
	return result;
}

int sn_closesocket(SOCKET s)
{
	int fd = sn_descriptor(s);
	if (fd < 0)
		return close(fd);
	sn_closing(s);
	int result = 0;
	if (atomic_load(&sn_forked) || !snGoClosing(fd)) // otherwise Go has closed it
		result = close(fd) == 0 || errno == EINTR ? 0 : SOCKET_ERROR;
	sn_closed(s);
	return result;
}

int sn_ioctlsocket(SOCKET s, long command, void *argument)
{
	int fd = sn_descriptor(s), value;
	if (argument == NULL)
		return sn_fail_socket(WSAEFAULT);
	switch (command) {
	case FIONBIO:
		value = *(DWORD *)argument != 0;
		if (!value && sn_is_watched(s))
			return sn_fail_socket(WSAEINVAL);
		if (!atomic_load(&sn_forked) && snGoOperates(fd)) {
			sn_set_blocking(s, true);
		} else {
			if (ioctl(fd, FIONBIO, &value) != 0)
				return SOCKET_ERROR;
			sn_set_blocking(s, false);
		}
		if (value)
			sn_set_nonblocking(s);
		return 0;
	case FIONREAD:
		if (ioctl(fd, FIONREAD, &value) != 0)
			return SOCKET_ERROR;
		*(DWORD *)argument = (DWORD)value;
		return 0;
	}
	return sn_fail_socket(WSAEOPNOTSUPP);
}
