#define _GNU_SOURCE
#include "sn.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local DWORD last;

DWORD sn_GetLastError(void)
{
	return errno == sn_errno_own ? last : sn_of_errno(errno);
}

void sn_SetLastError(DWORD error)
{
	last = error;
	errno = sn_errno_own;
}

BOOL sn_fail(DWORD error)
{
	sn_SetLastError(error);
	return FALSE;
}

int sn_fail_socket(DWORD error)
{
	sn_SetLastError(error);
	return SOCKET_ERROR;
}

// The errors that docs/c.md lists. Errors of sockets are Winsock's, and all others are those of the system.
static const struct {
	int of;
	DWORD is;
} errors[] = {
	{0, ERROR_SUCCESS},
	{EPERM, ERROR_ACCESS_DENIED},
	{ENOENT, ERROR_FILE_NOT_FOUND},
	{EINTR, WSAEINTR},
	{EIO, ERROR_IO_DEVICE},
	{EBADF, WSAENOTSOCK},
	{EAGAIN, WSAEWOULDBLOCK},
	{ENOMEM, ERROR_NOT_ENOUGH_MEMORY},
	{EACCES, WSAEACCES},
	{EFAULT, WSAEFAULT},
	{EEXIST, ERROR_FILE_EXISTS},
	{ENOTDIR, ERROR_PATH_NOT_FOUND},
	{EINVAL, WSAEINVAL},
	{ENFILE, WSAEMFILE},
	{EMFILE, WSAEMFILE},
	{ENOSPC, ERROR_DISK_FULL},
	{EPIPE, WSAESHUTDOWN},
	{ENOSYS, ERROR_NOT_SUPPORTED},
	{ELOOP, WSAELOOP},
	{ENAMETOOLONG, WSAENAMETOOLONG},
	{ENOTSOCK, WSAENOTSOCK},
	{EDESTADDRREQ, WSAEDESTADDRREQ},
	{EMSGSIZE, WSAEMSGSIZE},
	{EPROTOTYPE, WSAEPROTOTYPE},
	{ENOPROTOOPT, WSAENOPROTOOPT},
	{EPROTONOSUPPORT, WSAEPROTONOSUPPORT},
	{ESOCKTNOSUPPORT, WSAESOCKTNOSUPPORT},
	{EOPNOTSUPP, WSAEOPNOTSUPP},
	{EPFNOSUPPORT, WSAEPFNOSUPPORT},
	{EAFNOSUPPORT, WSAEAFNOSUPPORT},
	{EADDRINUSE, WSAEADDRINUSE},
	{EADDRNOTAVAIL, WSAEADDRNOTAVAIL},
	{ENETDOWN, WSAENETDOWN},
	{ENETUNREACH, WSAENETUNREACH},
	{ENETRESET, WSAENETRESET},
	{ECONNABORTED, WSAECONNABORTED},
	{ECONNRESET, WSAECONNRESET},
	{ENOBUFS, WSAENOBUFS},
	{EISCONN, WSAEISCONN},
	{ENOTCONN, WSAENOTCONN},
	{ESHUTDOWN, WSAESHUTDOWN},
	{ETIMEDOUT, WSAETIMEDOUT},
	{ECONNREFUSED, WSAECONNREFUSED},
	{EHOSTDOWN, WSAEHOSTDOWN},
	{EHOSTUNREACH, WSAEHOSTUNREACH},
	{EALREADY, WSAEALREADY},
	{EINPROGRESS, WSAEINPROGRESS},
};

DWORD sn_of_errno(int e)
{
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
		if (errors[i].of == e)
			return errors[i].is;
	return ERROR_UNIDENTIFIED_ERROR;
}

// Texts of errors that no errno stands for.
static const struct {
	DWORD of;
	const char *is;
} texts[] = {
	{ERROR_TOO_MANY_OPEN_FILES, "Too many open files"},
	{ERROR_INVALID_HANDLE, "Invalid handle"},
	{ERROR_HANDLE_EOF, "End of file"},
	{ERROR_NOT_SUPPORTED, "Not supported"},
	{ERROR_INVALID_PARAMETER, "Invalid parameter"},
	{ERROR_BROKEN_PIPE, "Broken pipe"},
	{ERROR_INSUFFICIENT_BUFFER, "Buffer too small"},
	{ERROR_ALREADY_EXISTS, "Already exists"},
	{ERROR_MR_MID_NOT_FOUND, "No text for this error"},
	{WAIT_TIMEOUT, "The wait timed out"},
	{ERROR_ABANDONED_WAIT_0, "The completion port was closed during the wait"},
	{ERROR_OPERATION_ABORTED, "The operation was canceled"},
	{ERROR_IO_INCOMPLETE, "The operation has not completed"},
	{ERROR_IO_PENDING, "The operation is in progress"},
	{WSATYPE_NOT_FOUND, "No such service is known"},
	{WSAHOST_NOT_FOUND, "No such host is known"},
	{WSATRY_AGAIN, "The server of names gave no answer"},
	{WSANO_RECOVERY, "The name could not be looked up"},
	{WSANO_DATA, "The name has no address"},
	{ERROR_NOACCESS, "Invalid or unaligned address"},
	{ERROR_NOT_FOUND, "Not found"},
	{ERROR_CONNECTION_REFUSED, "Connection refused"},
	{ERROR_NETNAME_DELETED, "Connection reset"},
	{ERROR_CONNECTION_ABORTED, "Connection aborted"},
	{ERROR_NETWORK_UNREACHABLE, "Network is unreachable"},
	{ERROR_HOST_UNREACHABLE, "Host is unreachable"},
	{ERROR_PORT_UNREACHABLE, "Port is unreachable"},
	{ERROR_SEM_TIMEOUT, "The connection timed out"},
	{ERROR_MORE_DATA, "There is more data"},
	{ERROR_UNIDENTIFIED_ERROR, "Unidentified error"},
	{ERROR_NO_SYSTEM_RESOURCES, "The system lacks resources"},
	{WSAEDISCON, "The peer has disconnected"},
};

// text returns the text of an error, or NULL.
static const char *text(DWORD error)
{
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (texts[i].of == error)
			return texts[i].is;
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
		if (errors[i].is == error)
			return strerrordesc_np(errors[i].of);
	return NULL;
}

#define ALLOCATE_BUFFER 0x0100
#define FROM_SYSTEM 0x1000

// format writes the text of an error, with the end of a line, in characters of 1 or 4 bytes, and returns its length.
static DWORD format(DWORD flags, DWORD error, void *buffer, DWORD size, bool wide)
{
	const char *s = text(error);
	if (!(flags & FROM_SYSTEM) || buffer == NULL)
		return sn_fail(ERROR_INVALID_PARAMETER);
	if (s == NULL)
		return sn_fail(ERROR_MR_MID_NOT_FOUND);
	char line[128];
	DWORD n = (DWORD)snprintf(line, sizeof line, "%s.\r\n", s);
	if (flags & ALLOCATE_BUFFER) {
		void *made = calloc(n + 1, wide ? sizeof(WCHAR) : 1);
		if (made == NULL)
			return sn_fail(ERROR_NOT_ENOUGH_MEMORY);
		*(void **)buffer = made;
		buffer = made;
	} else if (n >= size) {
		return sn_fail(ERROR_INSUFFICIENT_BUFFER);
	}
	for (DWORD i = 0; i <= n; i++) {
		if (wide)
			((WCHAR *)buffer)[i] = (unsigned char)line[i];
		else
			((char *)buffer)[i] = line[i];
	}
	return n;
}

DWORD sn_FormatMessageA(DWORD flags, LPCVOID source, DWORD error, DWORD language, LPSTR buffer, DWORD size, void *arguments)
{
	(void)source, (void)language, (void)arguments;
	return format(flags, error, buffer, size, false);
}

DWORD sn_FormatMessageW(DWORD flags, LPCVOID source, DWORD error, DWORD language, LPWSTR buffer, DWORD size, void *arguments)
{
	(void)source, (void)language, (void)arguments;
	return format(flags, error, buffer, size, true);
}
