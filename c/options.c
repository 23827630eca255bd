#define _GNU_SOURCE
#include "sn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

// A timeout is a DWORD of milliseconds on Windows.
static int set_timeout(int fd, int option, DWORD ms)
{
	struct timeval t = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000) * 1000};
	return setsockopt(fd, SOL_SOCKET, option, &t, sizeof t);
}

// The system counts seconds, and has no 0.
static int seconds(DWORD ms) { return ms <= 1000 ? 1 : ms > 32767000 ? 32767 : (int)((ms + 999) / 1000); }

int sn_keep_alive(SOCKET s, const void *values, DWORD size)
{
	struct sn_tcp_keepalive of;
	if (values == NULL || size < sizeof of)
		return sn_fail_socket(WSAEFAULT);
	memcpy(&of, values, sizeof of);
	int fd = sn_descriptor(s), on = of.onoff != 0, idle = seconds(of.keepalivetime), interval = seconds(of.keepaliveinterval);
	if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) != 0)
		return SOCKET_ERROR;
	if (!on)
		return 0;
	if (setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) != 0)
		return SOCKET_ERROR;
	return setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
}

// dont_linger is SO_DONTLINGER, which turns SO_LINGER off, or on with the time that it has.
static int dont_linger(int fd, const void *value, int length)
{
	struct linger l;
	socklen_t size = sizeof l;
	int off = 0;
	if (value == NULL || length < (int)sizeof off)
		return sn_fail_socket(WSAEFAULT);
	memcpy(&off, value, sizeof off);
	if (getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &size) != 0)
		return SOCKET_ERROR;
	l.l_onoff = !off;
	return setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
}

int sn_setsockopt(SOCKET s, int level, int option, const void *value, int length)
{
	int fd = sn_descriptor(s);
	if (level == SOL_SOCKET) {
		switch (option) {
		case SN_SO_UPDATE_ACCEPT_CONTEXT: // AcceptEx and ConnectEx have done it
		case SN_SO_UPDATE_CONNECT_CONTEXT:
		case SN_SO_EXCLUSIVEADDRUSE: // it is so for each socket
			return 0;
		case SN_SO_DONTLINGER:
			return dont_linger(fd, value, length);
		case SO_RCVTIMEO:
		case SO_SNDTIMEO:
			if (value != NULL && length == sizeof(DWORD)) {
				DWORD ms;
				memcpy(&ms, value, sizeof ms);
				return set_timeout(fd, option, ms);
			}
		}
	}
	if (value != NULL && length == 1) { // a C++ bool, or a BOOLEAN
		int wide = *(const unsigned char *)value;
		return setsockopt(fd, level, option, &wide, sizeof wide);
	}
	return setsockopt(fd, level, option, value, (socklen_t)length);
}

// get_dword gives an option that is a DWORD on Windows.
static int get_dword(DWORD is, void *value, int *length)
{
	if (value == NULL || length == NULL || *length < (int)sizeof is)
		return sn_fail_socket(WSAEFAULT);
	memcpy(value, &is, sizeof is);
	*length = sizeof is;
	return 0;
}

int sn_getsockopt(SOCKET s, int level, int option, void *value, int *length)
{
	int fd = sn_descriptor(s), error = 0;
	socklen_t size = sizeof error;
	struct timeval t;
	struct linger l;
	struct sockaddr_storage peer;
	if (level != SOL_SOCKET)
		return getsockopt(fd, level, option, value, (socklen_t *)(void *)length);
	switch (option) {
	case SN_SO_CONNECT_TIME:
		size = sizeof peer;
		if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0)
			return get_dword(sn_connect_time(s), value, length);
		return errno == ENOTCONN ? get_dword(0xffffffff, value, length) : SOCKET_ERROR;
	case SN_SO_DONTLINGER:
		size = sizeof l;
		if (getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &size) != 0)
			return SOCKET_ERROR;
		return get_dword(!l.l_onoff, value, length);
	case SO_RCVTIMEO:
	case SO_SNDTIMEO:
		size = sizeof t;
		if (length == NULL || *length != sizeof(DWORD))
			break;
		if (getsockopt(fd, SOL_SOCKET, option, &t, &size) != 0)
			return SOCKET_ERROR;
		return get_dword((DWORD)(t.tv_sec * 1000 + t.tv_usec / 1000), value, length);
	case SO_ERROR:
		if (length == NULL || *length < (int)sizeof(DWORD))
			break;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
			return SOCKET_ERROR;
		return get_dword(sn_of_errno(error), value, length);
	}
	return getsockopt(fd, level, option, value, (socklen_t *)(void *)length);
}
