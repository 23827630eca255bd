#define _GNU_SOURCE
#include "sn.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

// send_all sends on a socket whose calls may not block, too.
static bool send_all(SOCKET s, const char *b, size_t size)
{
	while (size > 0) {
		int n = sn_send(s, b, size < 1 << 30 ? (int)size : 1 << 30, 0);
		if (n < 0 && errno == EAGAIN) {
			struct pollfd fds[2] = {{(int)s, POLLOUT, 0}};
			if (sn_await(fds, 1, NULL) > 0)
				continue;
			return sn_fail(WSAEINTR);
		}
		if (n < 0)
			return false;
		b += n;
		size -= (size_t)n;
	}
	return true;
}

// send_file sends from the file's position up to a number of bytes, or to the end for 0.
static bool send_file(SOCKET s, int fd, size_t most)
{
	char b[1 << 16];
	for (size_t sent = 0; most == 0 || sent < most;) {
		size_t size = most == 0 || most - sent > sizeof b ? sizeof b : most - sent;
		ssize_t n = read(fd, b, size);
		if (n <= 0)
			return n == 0;
		if (!send_all(s, b, (size_t)n))
			return false;
		sent += (size_t)n;
	}
	return true;
}

// contents returns the bytes of a file from an offset, *size of them or for 0 all. It sets *size, and errno with NULL.
static char *contents(int fd, off_t from, size_t *size)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return NULL;
	size_t left = st.st_size > from ? (size_t)(st.st_size - from) : 0, got = 0;
	if (*size == 0 || *size > left)
		*size = left;
	char *b = malloc(*size + 1);
	ssize_t n = 1;
	while (b != NULL && got < *size && (n = pread(fd, b + got, *size - got, from + (off_t)got)) > 0)
		got += (size_t)n;
	*size = got;
	if (n >= 0)
		return b;
	free(b);
	return NULL;
}

// start begins to send all as one operation, with a copy that it keeps.
static BOOL start(SOCKET s, int fd, size_t bytes, LPOVERLAPPED o, const sn_TRANSMIT_FILE_BUFFERS *around)
{
	char *b = NULL;
	if (fd >= 0 && (b = contents(fd, (off_t)((uint64_t)o->OffsetHigh << 32 | o->Offset), &bytes)) == NULL)
		return FALSE;
	if (fd < 0)
		bytes = 0;
	WSABUF parts[3] = {{around->HeadLength, around->Head}, {(ULONG)bytes, b}, {around->TailLength, around->Tail}};
	BOOL sent = bytes > 0x7fffffff ? sn_fail(WSAEINVAL) : sn_WSASend(s, parts, 3, NULL, 0, o, NULL) == 0;
	free(b); // which keeps errno
	return sent;
}

BOOL sn_TransmitFile(SOCKET s, HANDLE file, DWORD bytes, DWORD each, LPOVERLAPPED overlapped, sn_TRANSMIT_FILE_BUFFERS *around,
	DWORD flags)
{
	static const sn_TRANSMIT_FILE_BUFFERS none;
	const sn_TRANSMIT_FILE_BUFFERS *a = around != NULL ? around : &none;
	int fd = file != NULL ? (int)(intptr_t)file : -1;
	DWORD reuse = flags & SN_TF_REUSE_SOCKET;
	(void)each;
	if (file != NULL && !sn_is_descriptor(file))
		return sn_fail(ERROR_INVALID_HANDLE);
	if (reuse != 0 && !(flags & SN_TF_DISCONNECT))
		return sn_fail(WSAEINVAL);
	bool sends = fd >= 0 || a->HeadLength != 0 || a->TailLength != 0;
	if (overlapped != NULL && sends)
		return flags & SN_TF_DISCONNECT ? sn_fail(WSAEOPNOTSUPP) : start(s, fd, bytes, overlapped, a);
	if (!send_all(s, a->Head, a->HeadLength) || (fd >= 0 && !send_file(s, fd, bytes)) || !send_all(s, a->Tail, a->TailLength))
		return FALSE;
	return !(flags & SN_TF_DISCONNECT) || sn_DisconnectEx(s, overlapped, reuse, 0);
}
