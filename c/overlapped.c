#define _GNU_SOURCE
#include "sn.h"

#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "_cgo_export.h"

// The kinds of snGoTransfer.
enum { RECV, RECVFROM, SEND, SENDTO, READ, WRITE };

#define MAX_BUFFERS 1024
#define MAX_BYTES 0x7fffffff

static bool aligned(const void *p) { return ((uintptr_t)p & 7) == 0; }

// usable returns why an operation cannot be started, or 0.
static DWORD usable(SOCKET s, const WSABUF *buffers, DWORD count, LPOVERLAPPED o, bool routine)
{
	ULONGLONG total = 0;
	if (s > 0x7fffffff)
		return WSAENOTSOCK;
	if (count == 0 || count > MAX_BUFFERS)
		return WSAEINVAL;
	if (buffers == NULL || !aligned(buffers) || !aligned(o))
		return WSAEFAULT;
	for (DWORD i = 0; i < count; i++) {
		if (buffers[i].buf == NULL && buffers[i].len != 0)
			return WSAEFAULT;
		total += buffers[i].len;
	}
	if (total > MAX_BYTES)
		return WSAEINVAL;
	if (atomic_load_explicit(&sn_forked, memory_order_relaxed))
		return ERROR_NOT_SUPPORTED;
	// The lowest bit of hEvent says that the completion is not queued. With a routine hEvent is the program's own.
	uintptr_t event = o != NULL && !routine ? (uintptr_t)o->hEvent & ~(uintptr_t)SN_TAG_MASK : 0;
	if (event != 0 && !sn_reset((HANDLE)event))
		return ERROR_INVALID_HANDLE;
	return 0;
}

// now makes a call that is not overlapped. other is NULL, or has data of other protocols.
static int now(bool sends, SOCKET s, const WSABUF *buffers, DWORD count, LPDWORD moved, int flags, void *address, int *length,
	sn_WSAMSG *other)
{
	struct iovec v[64];
	if (count > 64)
		return sn_fail_socket(WSAEINVAL);
	for (DWORD i = 0; i < count; i++)
		v[i] = (struct iovec){buffers[i].buf, buffers[i].len};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = count, .msg_name = address, .msg_namelen = length ? (socklen_t)*length : 0};
	if (other != NULL) {
		m.msg_control = other->Control.len != 0 ? other->Control.buf : NULL;
		m.msg_controllen = other->Control.len;
	}
	ssize_t n = sn_message(s, &m, flags, sends);
	if (n < 0)
		return SOCKET_ERROR;
	if (other != NULL && !sends) {
		other->Control.len = (ULONG)m.msg_controllen;
		other->dwFlags = (DWORD)m.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
	}
	if (length != NULL && !sends)
		*length = (int)m.msg_namelen;
	if (moved != NULL)
		*moved = (DWORD)n;
	return !sends && (m.msg_flags & MSG_TRUNC) ? sn_fail_socket(WSAEMSGSIZE) : 0;
}

static int transfer(int kind, SOCKET s, LPWSABUF buffers, DWORD count, LPDWORD moved, DWORD flags, void *address, int *length,
	LPOVERLAPPED o, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine)
{
	bool sends = kind == SEND || kind == SENDTO;
	DWORD error = usable(s, buffers, count, o, routine != NULL);
	if (error == 0 && sends && (flags & SN_MSG_PARTIAL) && !sn_is_stream(s))
		error = WSAEOPNOTSUPP; // a datagram has no parts
	if (error != 0)
		return sn_fail_socket(error);
	flags &= ~SN_MSG_PARTIAL; // a stream has no messages, and a call that receives never waits for more
	if (o == NULL)
		return now(sends, s, buffers, count, moved, (int)flags, address, length, NULL);
	if (flags != 0)
		return sn_fail_socket(WSAEOPNOTSUPP);
	if (!sends && (error = sn_ended(s)) != 0)
		return sn_fail_socket(error);
	struct sn_routine *r = NULL;
	if (routine != NULL && (r = sn_begin_routine(routine, o)) == NULL)
		return sn_fail_socket(WSAENOBUFS);
	error = snGoTransfer(kind, (int)s, buffers, count, address, length, 0, o, (uintptr_t)r);
	if (r != NULL && error != WSA_IO_PENDING)
		sn_drop_routine(r);
	return sn_fail_socket(error);
}

int sn_WSARecv(SOCKET s, LPWSABUF buffers, DWORD bufferCount, LPDWORD received, LPDWORD flags, LPOVERLAPPED overlapped,
	LPWSAOVERLAPPED_COMPLETION_ROUTINE routine)
{
	if (flags == NULL)
		return sn_fail_socket(WSAEFAULT);
	return transfer(RECV, s, buffers, bufferCount, received, *flags, NULL, NULL, overlapped, routine);
}

int sn_WSARecvFrom(SOCKET s, LPWSABUF buffers, DWORD bufferCount, LPDWORD received, LPDWORD flags, struct sockaddr *from,
	int *fromLength, LPOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine)
{
	if (flags == NULL || (from == NULL) != (fromLength == NULL) || (fromLength != NULL && *fromLength < 0))
		return sn_fail_socket(WSAEFAULT);
	return transfer(RECVFROM, s, buffers, bufferCount, received, *flags, from, fromLength, overlapped, routine);
}

int sn_WSASend(SOCKET s, LPWSABUF buffers, DWORD bufferCount, LPDWORD sent, DWORD flags, LPOVERLAPPED overlapped,
	LPWSAOVERLAPPED_COMPLETION_ROUTINE routine)
{
	return transfer(SEND, s, buffers, bufferCount, sent, flags, NULL, NULL, overlapped, routine);
}

int sn_WSASendTo(SOCKET s, LPWSABUF buffers, DWORD bufferCount, LPDWORD sent, DWORD flags, const struct sockaddr *to,
	int toLength, LPOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine)
{
	return transfer(to != NULL ? SENDTO : SEND, s, buffers, bufferCount, sent, flags, (void *)(uintptr_t)to,
		to != NULL ? &toLength : NULL, overlapped, routine);
}

// ADDRESS is how much of the buffer of AcceptEx an address needs at least: 16 bytes more than a sockaddr_in.
#define ADDRESS 32

BOOL sn_AcceptEx(SOCKET listener, SOCKET connection, PVOID buffer, DWORD dataLength, DWORD localLength,
	DWORD remoteLength, LPDWORD received, LPOVERLAPPED overlapped)
{
	if (overlapped != NULL && buffer == NULL)
		return sn_fail(WSAEFAULT);
	if (overlapped == NULL || localLength < ADDRESS || remoteLength < ADDRESS ||
		(ULONGLONG)dataLength + localLength + remoteLength > MAX_BYTES)
		return sn_fail(ERROR_INVALID_PARAMETER);
	WSABUF b = {0, buffer};
	DWORD error = usable(listener, &b, 1, overlapped, false);
	if (error == 0)
		error = connection > 0x7fffffff ? WSAENOTSOCK
			: snGoAccept((int)listener, (int)connection, buffer, dataLength, localLength, remoteLength, overlapped);
	if (received != NULL)
		*received = 0;
	return sn_fail(error);
}

// address finds the address at the end of a part of AcceptEx's buffer.
static void address(char *part, DWORD length, struct sockaddr **to, int *size)
{
	uint32_t n;
	memcpy(&n, part + length - sizeof n, sizeof n);
	if (to != NULL)
		*to = (struct sockaddr *)(void *)part;
	if (size != NULL)
		*size = (int)n;
}

void sn_GetAcceptExSockaddrs(PVOID buffer, DWORD dataLength, DWORD localLength, DWORD remoteLength,
	struct sockaddr **local, int *localSize, struct sockaddr **remote, int *remoteSize)
{
	address((char *)buffer + dataLength, localLength, local, localSize);
	address((char *)buffer + dataLength + localLength, remoteLength, remote, remoteSize);
}

BOOL sn_ConnectEx(SOCKET s, const struct sockaddr *name, int nameLength, PVOID buffer, DWORD length, LPDWORD sent,
	LPOVERLAPPED overlapped)
{
	WSABUF b = {length, buffer};
	DWORD error = overlapped == NULL || name == NULL ? ERROR_INVALID_PARAMETER : usable(s, &b, 1, overlapped, false);
	if (error == 0)
		error = snGoConnect((int)s, (void *)(uintptr_t)name, nameLength, buffer, length, overlapped);
	if (sent != NULL)
		*sent = 0;
	return sn_fail(error);
}

BOOL sn_DisconnectEx(SOCKET s, LPOVERLAPPED overlapped, DWORD flags, DWORD reserved)
{
	WSABUF none = {0, NULL};
	DWORD error = usable(s, &none, 1, overlapped, false);
	if (error == 0 && ((flags & ~SN_TF_REUSE_SOCKET) != 0 || reserved != 0))
		error = WSAEINVAL;
	if (error == 0)
		error = snGoDisconnect((int)s, (flags & SN_TF_REUSE_SOCKET) != 0, overlapped);
	return error == 0 || sn_fail(error);
}

// usable_message returns why a message cannot be received or sent, or 0. Other data is not overlapped.
static DWORD usable_message(const sn_WSAMSG *m, LPOVERLAPPED o)
{
	if (m == NULL || (m->Control.buf == NULL && m->Control.len != 0))
		return WSAEFAULT;
	return o != NULL && m->Control.len != 0 ? WSAEOPNOTSUPP : 0;
}

int sn_WSARecvMsg(SOCKET s, sn_WSAMSG *m, LPDWORD received, LPOVERLAPPED overlapped,
	LPWSAOVERLAPPED_COMPLETION_ROUTINE routine)
{
	DWORD error = usable_message(m, overlapped);
	if (error != 0)
		return sn_fail_socket(error);
	int *length = m->name != NULL ? &m->namelen : NULL;
	if (overlapped != NULL)
		return transfer(RECVFROM, s, m->lpBuffers, m->dwBufferCount, received, m->dwFlags, m->name, length, overlapped, routine);
	error = usable(s, m->lpBuffers, m->dwBufferCount, NULL, false);
	if (error != 0)
		return sn_fail_socket(error);
	return now(false, s, m->lpBuffers, m->dwBufferCount, received, (int)m->dwFlags, m->name, length, m);
}

int sn_WSASendMsg(SOCKET s, sn_WSAMSG *m, DWORD flags, LPDWORD sent, LPOVERLAPPED overlapped,
	LPWSAOVERLAPPED_COMPLETION_ROUTINE routine)
{
	DWORD error = usable_message(m, overlapped);
	if (error != 0)
		return sn_fail_socket(error);
	int *length = m->name != NULL ? &m->namelen : NULL;
	if (overlapped != NULL)
		return transfer(m->name != NULL ? SENDTO : SEND, s, m->lpBuffers, m->dwBufferCount, sent, flags, m->name, length, overlapped,
			routine);
	error = usable(s, m->lpBuffers, m->dwBufferCount, NULL, false);
	if (error != 0)
		return sn_fail_socket(error);
	return now(true, s, m->lpBuffers, m->dwBufferCount, sent, (int)flags, m->name, length, m);
}

int sn_WSAIoctl(SOCKET s, DWORD code, LPVOID in, DWORD inLength, LPVOID out, DWORD outLength, LPDWORD returned,
	LPOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine)
{
	static const struct {
		uint8_t id[16];
		void *function;
	} functions[] = {
		{{0xf1, 0x7d, 0x36, 0xb5, 0xac, 0xcb, 0xcf, 0x11, 0x95, 0xca, 0x00, 0x80, 0x5f, 0x48, 0xa1, 0x92}, sn_AcceptEx},
		{{0xb9, 0x07, 0xa2, 0x25, 0xf3, 0xdd, 0x60, 0x46, 0x8e, 0xe9, 0x76, 0xe5, 0x8c, 0x74, 0x06, 0x3e}, sn_ConnectEx},
		{{0x11, 0x2e, 0xda, 0x7f, 0x30, 0x86, 0x6f, 0x43, 0xa0, 0x31, 0xf5, 0x36, 0xa6, 0xee, 0xc1, 0x57}, sn_DisconnectEx},
		{{0xc8, 0xd7, 0x89, 0xf6, 0x1f, 0x6f, 0x6b, 0x43, 0x8a, 0x53, 0xe5, 0x4f, 0xe3, 0x51, 0xc3, 0x22}, sn_WSARecvMsg},
		{{0x12, 0xe7, 0x41, 0xa4, 0x4f, 0x75, 0xca, 0x43, 0x84, 0xa7, 0x0d, 0xee, 0x44, 0xcf, 0x60, 0x6d}, sn_WSASendMsg},
		{{0xf0, 0x7d, 0x36, 0xb5, 0xac, 0xcb, 0xcf, 0x11, 0x95, 0xca, 0x00, 0x80, 0x5f, 0x48, 0xa1, 0x92}, sn_TransmitFile},
		{{0xf2, 0x7d, 0x36, 0xb5, 0xac, 0xcb, 0xcf, 0x11, 0x95, 0xca, 0x00, 0x80, 0x5f, 0x48, 0xa1, 0x92}, sn_GetAcceptExSockaddrs},
	};
	(void)overlapped, (void)routine;
	switch (code) {
	case FIONBIO:
	case SN_SIO_KEEPALIVE_VALS:
		if (returned != NULL)
			*returned = 0;
		if (code == SN_SIO_KEEPALIVE_VALS)
			return sn_keep_alive(s, in, inLength);
		return in == NULL || inLength < sizeof(DWORD) ? sn_fail_socket(WSAEFAULT) : sn_ioctlsocket(s, FIONBIO, in);
	case SN_SIO_UDP_CONNRESET: // a socket that is not connected reports no port that is unreachable
		if (in == NULL || inLength < sizeof(DWORD))
			return sn_fail_socket(WSAEFAULT);
		if (returned != NULL)
			*returned = 0;
		return *(DWORD *)in == 0 ? 0 : sn_fail_socket(WSAEOPNOTSUPP);
	case FIONREAD:
		if (out == NULL || outLength < sizeof(DWORD))
			return sn_fail_socket(WSAEFAULT);
		if (returned != NULL)
			*returned = sizeof(DWORD);
		return sn_ioctlsocket(s, FIONREAD, out);
	case 0xc8000006: // SIO_GET_EXTENSION_FUNCTION_POINTER
		break;
	default:
		return sn_fail_socket(WSAEOPNOTSUPP);
	}
	if (in == NULL || inLength < sizeof functions[0].id || out == NULL || outLength < sizeof(void *))
		return sn_fail_socket(WSAEFAULT);
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
		if (memcmp(in, functions[i].id, sizeof functions[i].id) == 0) {
			memcpy(out, &functions[i].function, sizeof(void *));
			if (returned != NULL)
				*returned = sizeof(void *);
			return 0;
		}
	return sn_fail_socket(WSAEINVAL);
}

static BOOL file(int kind, HANDLE h, void *buffer, DWORD length, LPDWORD moved, LPOVERLAPPED o)
{
	if (!sn_is_descriptor(h))
		return sn_fail(ERROR_INVALID_HANDLE);
	if (moved != NULL)
		*moved = 0;
	if (o == NULL) {
		ssize_t n = kind == READ ? read((int)(intptr_t)h, buffer, length) : write((int)(intptr_t)h, buffer, length);
		if (n < 0)
			return errno == EBADF ? sn_fail(ERROR_INVALID_HANDLE) : FALSE;
		if (moved != NULL)
			*moved = (DWORD)n;
		return TRUE;
	}
	WSABUF b = {length, buffer};
	DWORD error = usable((SOCKET)h, &b, 1, o, false);
	if (error == 0)
		error = snGoTransfer(kind, (int)(intptr_t)h, &b, 1, NULL, NULL, (uint64_t)o->OffsetHigh << 32 | o->Offset, o, 0);
	return sn_fail(error);
}

BOOL sn_ReadFile(HANDLE h, LPVOID buffer, DWORD length, LPDWORD read, LPOVERLAPPED overlapped)
{
	return file(READ, h, buffer, length, read, overlapped);
}

BOOL sn_WriteFile(HANDLE h, LPCVOID buffer, DWORD length, LPDWORD written, LPOVERLAPPED overlapped)
{
	return file(WRITE, h, (void *)(uintptr_t)buffer, length, written, overlapped);
}

BOOL sn_CancelIoEx(HANDLE h, LPOVERLAPPED overlapped)
{
	if (!sn_is_descriptor(h))
		return sn_fail(ERROR_INVALID_HANDLE);
	if (atomic_load(&sn_forked))
		return sn_fail(ERROR_NOT_SUPPORTED);
	DWORD error = snGoCancel((int)(intptr_t)h, overlapped);
	return error == ERROR_SUCCESS || sn_fail(error);
}

#define PENDING 0x103

int32_t sn_waiting;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t completed = PTHREAD_COND_INITIALIZER;

void sn_completed(void)
{
	pthread_mutex_lock(&lock);
	pthread_cond_broadcast(&completed);
	pthread_mutex_unlock(&lock);
}

static ULONG_PTR status_of(LPOVERLAPPED o)
{
	return __atomic_load_n(&o->Internal, __ATOMIC_SEQ_CST);
}

static BOOL result(LPOVERLAPPED o, LPDWORD transferred, BOOL wait, bool of_socket)
{
	if (o == NULL || transferred == NULL)
		return sn_fail(ERROR_INVALID_PARAMETER);
	if (status_of(o) == PENDING && !wait)
		return sn_fail(ERROR_IO_INCOMPLETE);
	if (status_of(o) == PENDING) {
		// A thread that completes an operation sets the status, and then reads sn_waiting. So it
		// sees this thread, or this thread sees the status.
		pthread_mutex_lock(&lock);
		__atomic_fetch_add(&sn_waiting, 1, __ATOMIC_SEQ_CST);
		while (status_of(o) == PENDING)
			pthread_cond_wait(&completed, &lock);
		__atomic_fetch_sub(&sn_waiting, 1, __ATOMIC_SEQ_CST);
		pthread_mutex_unlock(&lock);
	}
	*transferred = (DWORD)o->InternalHigh;
	return o->Internal == 0 || sn_fail(sn_of_status(o->Internal, of_socket));
}

BOOL sn_GetOverlappedResult(HANDLE h, LPOVERLAPPED o, LPDWORD transferred, BOOL wait)
{
	(void)h;
	return result(o, transferred, wait, false);
}

BOOL sn_WSAGetOverlappedResult(SOCKET s, LPOVERLAPPED overlapped, LPDWORD transferred, BOOL wait, LPDWORD flags)
{
	if (flags != NULL)
		*flags = 0;
	(void)s;
	return result(overlapped, transferred, wait, true);
}
