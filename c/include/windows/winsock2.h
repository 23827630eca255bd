/* Winsock's names. Address families, options and flags of sockets are the system's: see the table in docs/c.md. */
#ifndef SN_WINSOCK2_H
#define SN_WINSOCK2_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* with -std=c11 the C library hides pthreads and more */
#endif

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "windows.h"

#define ProcessSocketNotifications sn_ProcessSocketNotifications
#define SocketNotificationRetrieveEvents sn_SocketNotificationRetrieveEvents

#define WSADESCRIPTION_LEN 256
#define WSASYS_STATUS_LEN 128
typedef struct WSAData {
	WORD wVersion;
	WORD wHighVersion;
	unsigned short iMaxSockets;
	unsigned short iMaxUdpDg;
	char *lpVendorInfo;
	char szDescription[WSADESCRIPTION_LEN + 1];
	char szSystemStatus[WSASYS_STATUS_LEN + 1];
} WSADATA, *LPWSADATA;
#define WINSOCK_VERSION MAKEWORD(2, 2)

static inline int sn_WSAStartup(WORD version, WSADATA *data)
{
	if (data == NULL)
		return WSAEFAULT;
	memset(data, 0, sizeof *data);
	data->wVersion = version;
	data->wHighVersion = WINSOCK_VERSION;
	return 0;
}
#define WSAStartup sn_WSAStartup
static inline int sn_WSACleanup(void) { return 0; }
#define WSACleanup sn_WSACleanup
#define WSAGetLastError sn_GetLastError
#define WSASetLastError(error) sn_SetLastError((DWORD)(error))

#define SD_RECEIVE SHUT_RD
#define SD_SEND SHUT_WR
#define SD_BOTH SHUT_RDWR

/* These are macros with arguments, so that members of the same names stay what they are. */
#define accept(s, address, length) sn_accept((s), (struct sockaddr *)(address), (socklen_t *)(length))
#ifdef __cplusplus
extern "C++" {
template <class S, class L> static inline int bind(S s, const struct sockaddr *name, L length)
{
	return sn_bind((SOCKET)s, name, (socklen_t)length); /* std::bind stays what it is */
}
}
#else
#define bind(s, name, length) \
	sn_bind((SOCKET)(s), (const struct sockaddr *)(name), (socklen_t)(length))
#endif
#define connect(s, name, length) sn_connect((s), (const struct sockaddr *)(name), (socklen_t)(length))
#define recv(s, buffer, length, flags) sn_recv((s), (buffer), (length), (flags))
#define recvfrom(s, buffer, length, flags, from, fromLength) \
	sn_recvfrom((s), (buffer), (length), (flags), (struct sockaddr *)(from), (socklen_t *)(fromLength))
#define send(s, buffer, length, flags) sn_send((s), (buffer), (length), (flags))
#define sendto(s, buffer, length, flags, to, toLength) sn_sendto((s), (buffer), (length), (flags), (to), (toLength))
#define select(count, reads, writes, excepts, timeout) \
	sn_select((int)(count), (reads), (writes), (excepts), (timeout))
#define closesocket(s) sn_closesocket(s)

/* ioctlsocket takes 32 bits, as u_long has on Windows. A program may also give an unsigned long. */
#define u_long ULONG
static inline int sn_ioctlsocket_long(SOCKET s, long command, unsigned long *argument)
{
	DWORD value = argument != NULL ? (DWORD)*argument : 0;
	int result = sn_ioctlsocket(s, command, argument != NULL ? &value : NULL);
	if (result == 0)
		*argument = value;
	return result;
}
#ifdef __cplusplus
extern "C++" {
static inline int sn_ioctlsocket_any(SOCKET s, long command, void *argument)
{
	return sn_ioctlsocket(s, command, argument);
}
static inline int sn_ioctlsocket_any(SOCKET s, long command, unsigned long *argument)
{
	return sn_ioctlsocket_long(s, command, argument);
}
}
#define ioctlsocket(s, command, argument) sn_ioctlsocket_any((s), (command), (argument))
#else
#define ioctlsocket(s, command, argument) \
	_Generic((argument), unsigned long *: sn_ioctlsocket_long, default: sn_ioctlsocket)( \
		(s), (command), (argument))
#endif

/* Lengths of addresses and options are int on Windows and socklen_t here. */
#define getsockname(s, address, length) getsockname((int)(s), (struct sockaddr *)(address), (socklen_t *)(length))
#define getpeername(s, address, length) getpeername((int)(s), (struct sockaddr *)(address), (socklen_t *)(length))
#define getsockopt(s, level, option, value, length) getsockopt((int)(s), (level), (option), (value), (socklen_t *)(length))

/* AcceptEx and ConnectEx need neither of these options, so setting them does nothing. */
#define SO_UPDATE_ACCEPT_CONTEXT 0x700B
#define SO_UPDATE_CONNECT_CONTEXT 0x7010
static inline int sn_setsockopt(SOCKET s, int level, int option, const void *value, socklen_t length)
{
	if (level == SOL_SOCKET && (option == SO_UPDATE_ACCEPT_CONTEXT || option == SO_UPDATE_CONNECT_CONTEXT))
		return 0;
	return setsockopt((int)s, level, option, value, length);
}
#define setsockopt(s, level, option, value, length) sn_setsockopt((s), (level), (option), (value), (socklen_t)(length))

typedef OVERLAPPED WSAOVERLAPPED, *LPWSAOVERLAPPED;
typedef struct sockaddr SOCKADDR, *PSOCKADDR, *LPSOCKADDR;
typedef struct sockaddr_in SOCKADDR_IN, *PSOCKADDR_IN, *LPSOCKADDR_IN;
typedef struct sockaddr_storage SOCKADDR_STORAGE, *PSOCKADDR_STORAGE;
typedef struct in_addr IN_ADDR, *PIN_ADDR;
typedef struct hostent HOSTENT, *PHOSTENT;
typedef struct timeval TIMEVAL;
typedef struct linger LINGER, *PLINGER, *LPLINGER;

#define WSA_FLAG_OVERLAPPED 0x01
#define WSA_FLAG_NO_HANDLE_INHERIT 0x80

/* A socket made by WSASocket needs no flag to be used with overlapped calls. */
static inline SOCKET sn_WSASocket(int family, int type, int protocol, DWORD flags)
{
	if (flags & WSA_FLAG_NO_HANDLE_INHERIT)
		type |= SOCK_CLOEXEC;
	return (SOCKET)(LONG_PTR)socket(family, type, protocol);
}
#define WSASocketA(family, type, protocol, info, group, flags) sn_WSASocket((family), (type), (protocol), (flags))
#define WSASocketW WSASocketA
#define WSASocket WSASocketA

#define WSARecv sn_WSARecv
#define WSASend sn_WSASend
#define WSARecvFrom sn_WSARecvFrom
#define WSASendTo sn_WSASendTo
#define WSAIoctl sn_WSAIoctl
#define WSAGetOverlappedResult sn_WSAGetOverlappedResult

typedef struct _GUID {
	uint32_t Data1;
	uint16_t Data2, Data3;
	uint8_t Data4[8];
} GUID;
#define SIO_GET_EXTENSION_FUNCTION_POINTER 0xc8000006u

#endif
