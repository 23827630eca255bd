#define _GNU_SOURCE
#include "../layer.h"
#include "../include/win32.h"

#include <stdlib.h>
#include <sys/ioctl.h>

// Conditions of a set of select.
enum {
	READS = POLLIN | POLLHUP | POLLERR,
	WRITES = POLLOUT | POLLERR,
	EXCEPTS = POLLPRI | POLLERR,
};

static nfds_t count_of(const sn_fd_set *set) { return set != NULL ? set->fd_count : 0; }

// add appends the sockets of a set. A socket may be in several sets. It returns false for a number
// that is no socket.
static bool add(struct pollfd **to, const sn_fd_set *set, short events)
{
	const SOCKET *s = set != NULL ? set->fd_array : NULL; // of any length
	for (nfds_t i = 0; i < count_of(set); i++) {
		int fd = sn_descriptor(s[i]);
		if (fd < 0)
			return false;
		*(*to)++ = (struct pollfd){fd, events, 0};
	}
	return true;
}

// keep leaves the sockets in a set of which one of the conditions holds, and returns their number.
static int keep(const struct pollfd **from, sn_fd_set *set, short conditions)
{
	nfds_t n = count_of(set);
	if (n == 0)
		return 0;
	set->fd_count = 0;
	for (SOCKET *kept = set->fd_array; n > 0; n--, (*from)++)
		if ((*from)->revents & conditions)
			kept[set->fd_count++] = (SOCKET)(*from)->fd;
	return (int)set->fd_count;
}

// drop_failed takes connects that have failed out of the first count elements, which read and write:
// on Windows they are in the set of exceptions alone. poll would report them again and again. It
// returns the number of all elements that are ready.
static int drop_failed(struct pollfd *fds, nfds_t count, nfds_t all)
{
	int ready = 0;
	for (nfds_t i = 0; i < all; i++) {
		struct pollfd *p = &fds[i];
		if (i < count && (p->revents & POLLERR) && sn_connect_failed((SOCKET)p->fd))
			*p = (struct pollfd){~p->fd, 0, 0};
		ready += p->revents != 0;
	}
	return ready;
}

int sn_select(int count, sn_fd_set *reads, sn_fd_set *writes, sn_fd_set *excepts,
	const struct timeval *timeout)
{
	(void)count; // it has no meaning on Windows, where programs give 0
	nfds_t n = count_of(reads) + count_of(writes) + count_of(excepts);
	if (n == 0)
		return sn_fail_socket(WSAEINVAL);
	struct pollfd *fds = malloc((n + 1) * sizeof *fds), *end = fds;
	if (fds == NULL)
		return sn_fail_socket(WSAENOBUFS);
	int error = WSAENOTSOCK, result = SOCKET_ERROR;
	if (!add(&end, reads, POLLIN) || !add(&end, writes, POLLOUT) || !add(&end, excepts, POLLPRI))
		goto failed;
	struct timespec until;
	if (timeout != NULL)
		until = sn_after((uint64_t)timeout->tv_sec * 1000000000 + (uint64_t)timeout->tv_usec * 1000);
	bool waits = timeout == NULL || timeout->tv_sec != 0 || timeout->tv_usec != 0;
	nfds_t first = count_of(reads) + count_of(writes);
	int ready = poll(fds, n, 0);
	if (ready > 0)
		ready = drop_failed(fds, first, n);
	while (ready == 0 && waits) {
		ready = sn_await(fds, n, timeout != NULL ? &until : NULL);
		if (ready <= 0)
			break;
		ready = drop_failed(fds, first, n);
	}
	if (ready == SN_CLOSED)
		goto failed;
	error = 0; // what errno stands for
	if (ready < 0)
		goto failed;
	error = WSAENOTSOCK;
	for (nfds_t i = 0; i < n; i++)
		if (fds[i].revents & POLLNVAL)
			goto failed;
	const struct pollfd *from = fds;
	result = keep(&from, reads, READS);
	result += keep(&from, writes, WRITES);
	result += keep(&from, excepts, EXCEPTS);
	error = 0;
failed:
	free(fds); // which keeps errno
	return error != 0 ? sn_fail_socket(error) : result;
}

#define READABLE (POLLIN | POLLRDNORM) // either asks for data, and is what Windows names POLLRDNORM

// with_end returns what poll has found. The end of a stream is POLLHUP on Windows, once there is no data.
static short with_end(const struct pollfd *p)
{
	int left = 0;
	if (!(p->revents & POLLRDHUP))
		return p->revents;
	short found = (short)(p->revents & ~POLLRDHUP);
	return ioctl(p->fd, FIONREAD, &left) == 0 && left == 0 ? (short)((found & ~READABLE) | POLLHUP) : found;
}

int sn_WSAPoll(sn_pollfd *fds, ULONG count, INT timeoutMs)
{
	if (count == 0)
		return sn_fail_socket(WSAEINVAL);
	if (fds == NULL)
		return sn_fail_socket(WSAEFAULT);
	struct pollfd *native = malloc((count + 1) * sizeof *native); // one more for sn_await
	if (native == NULL)
		return sn_fail_socket(WSAENOBUFS);
	int invalid = 0, n = 0;
	for (ULONG i = 0; i < count; i++) {
		short asked = fds[i].events;
		native[i] = (struct pollfd){sn_descriptor(fds[i].fd), (short)(asked & READABLE ? asked | POLLRDHUP : asked), 0};
		invalid += native[i].fd < 0;
	}
	struct timespec until;
	if (timeoutMs >= 0)
		until = sn_after((uint64_t)timeoutMs * 1000000);
	if ((n = poll(native, count, 0)) == 0 && timeoutMs != 0 && invalid == 0)
		n = sn_await(native, count, timeoutMs > 0 ? &until : NULL);
	for (ULONG i = 0; i < count && n >= 0; i++)
		fds[i].revents = native[i].fd < 0 ? POLLNVAL : with_end(&native[i]);
	free(native); // which keeps errno
	if (n == SN_CLOSED)
		return sn_fail_socket(WSAENOTSOCK);
	return n < 0 ? SOCKET_ERROR : n + invalid;
}
