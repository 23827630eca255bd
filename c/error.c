#define _GNU_SOURCE
#include "sn.h"

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

// The statuses of the kernel whose errors are not the same for GetLastError and WSAGetLastError,
// and those that programs compare with.
static const struct {
	uint32_t status;
	DWORD error, of_socket;
} statuses[] = {
	{0xc0000120, ERROR_OPERATION_ABORTED, WSA_OPERATION_ABORTED},
	{0xc000020d, ERROR_NETNAME_DELETED, WSAECONNRESET},
	{0xc0000236, ERROR_CONNECTION_REFUSED, WSAECONNREFUSED},
	{0xc0000241, ERROR_CONNECTION_ABORTED, WSAECONNABORTED},
	{0xc00000b5, ERROR_SEM_TIMEOUT, WSAETIMEDOUT},
	{0xc000023c, ERROR_NETWORK_UNREACHABLE, WSAENETUNREACH},
	{0xc000023d, ERROR_HOST_UNREACHABLE, WSAEHOSTUNREACH},
	{0x80000005, ERROR_MORE_DATA, WSAEMSGSIZE},
	{0xc0000011, ERROR_HANDLE_EOF, ERROR_HANDLE_EOF},
};

uint32_t sn_status_of(DWORD error)
{
	for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
		if (statuses[i].of_socket == error)
			return statuses[i].status;
	return error == ERROR_SUCCESS ? 0 : 0xc0070000 | error;
}

DWORD sn_of_status(ULONG_PTR status, bool of_socket)
{
	for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
		if (statuses[i].status == status)
			return of_socket ? statuses[i].of_socket : statuses[i].error;
	return (status & 0xffff0000) == 0xc0070000 ? (DWORD)status & 0xffff : (DWORD)status;
}
