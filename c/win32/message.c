#define _GNU_SOURCE
#include "../layer.h"
#include "../include/win32.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

#define LAST_ERRNO EHWPOISON

// text returns the text of an error, or NULL.
static const char *text(DWORD error)
{
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (texts[i].of == error)
			return texts[i].is;
	for (int e = 0; e <= LAST_ERRNO; e++)
		if (sn_of_errno(e) == error)
			return strerrordesc_np(e);
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
