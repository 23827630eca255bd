/* Winsock's names. Address families, options and flags of sockets are the system's: see the table in docs/c.md. */
#ifndef SN_WINSOCK2_H
#define SN_WINSOCK2_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* with -std=c11 the C library hides pthreads and more */
#endif

#include "windows.h"

#define nfds_t sn_system_nfds_t /* Winsock has none */
#include <poll.h>
#undef nfds_t

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

/* Sets of sockets are lists. The system's fd_set, which has bits, keeps its name in its header. */
#define fd_set sn_fd_set
typedef fd_set FD_SET, *PFD_SET, *LPFD_SET;
#undef FD_ZERO
#undef FD_SET
#undef FD_CLR
#undef FD_ISSET
static inline BOOL sn_is_in_set(SOCKET s, const fd_set *set)
{
	for (UINT i = 0; i < set->fd_count; i++)
		if (set->fd_array[i] == s)
			return TRUE;
	return FALSE;
}
static inline void sn_add_to_set(SOCKET s, fd_set *set)
{
	if (set->fd_count < FD_SETSIZE && !sn_is_in_set(s, set))
		set->fd_array[set->fd_count++] = s;
}
static inline void sn_remove_from_set(SOCKET s, fd_set *set)
{
	UINT kept = 0;
	for (UINT i = 0; i < set->fd_count; i++)
		if (set->fd_array[i] != s)
			set->fd_array[kept++] = set->fd_array[i];
	set->fd_count = kept;
}
#define FD_ZERO(set) ((void)((set)->fd_count = 0))
#define FD_SET(s, set) sn_add_to_set((s), (set))
#define FD_CLR(s, set) sn_remove_from_set((s), (set))
#define FD_ISSET(s, set) sn_is_in_set((s), (set))
#define select(count, reads, writes, excepts, timeout) \
	sn_select((int)(count), (reads), (writes), (excepts), (timeout))
#define closesocket(s) sn_closesocket(s)

/* ioctlsocket takes 32 bits, as u_long has on Windows. A program may also give an unsigned long. */
#define u_long ULONG
static inline int sn_ioctlsocket_long(SOCKET s, long command, unsigned long *argument)
{
	/* It may be the address of 32 bits, in a program that casts it. Only FIONREAD writes. */
	if (argument == NULL || command != (long)FIONREAD)
		return sn_ioctlsocket(s, command, argument);
	DWORD value = 0;
	int result = sn_ioctlsocket(s, command, &value);
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

typedef OVERLAPPED WSAOVERLAPPED, *LPWSAOVERLAPPED;
typedef struct sockaddr SOCKADDR, *PSOCKADDR, *LPSOCKADDR;
typedef struct sockaddr_in SOCKADDR_IN, *PSOCKADDR_IN, *LPSOCKADDR_IN;
typedef struct sockaddr_storage SOCKADDR_STORAGE, *PSOCKADDR_STORAGE;
typedef struct in_addr IN_ADDR, *PIN_ADDR;
typedef struct hostent HOSTENT, *PHOSTENT;
typedef struct addrinfo ADDRINFO;
typedef sa_family_t ADDRESS_FAMILY;
typedef struct timeval TIMEVAL;
#define WSAAddressToStringA sn_WSAAddressToStringA
#define WSAStringToAddressA sn_WSAStringToAddressA
#ifndef UNICODE
#define WSAAddressToString WSAAddressToStringA
#define WSAStringToAddress WSAStringToAddressA
#endif
typedef struct linger LINGER, *PLINGER, *LPLINGER;

#define SOMAXCONN_HINT(n) (n)
#define WSA_FLAG_OVERLAPPED 0x01
#define WSA_FLAG_NO_HANDLE_INHERIT 0x80

/* A socket made by WSASocket needs no flag to be used with overlapped calls. */
static inline SOCKET sn_WSASocket(int family, int type, int protocol, DWORD flags)
{
	if (flags & WSA_FLAG_NO_HANDLE_INHERIT)
		type |= SOCK_CLOEXEC;
	return socket(family, type, protocol);
}
#define WSASocketA(family, type, protocol, info, group, flags) sn_WSASocket((family), (type), (protocol), (flags))
#define WSASocketW WSASocketA
#define WSASocket WSASocketA

#define WSAAccept(s, address, length, condition, data) \
	sn_WSAAccept((s), (address), (length), (void *)(condition), (DWORD_PTR)(data))

#define WSAConnect(s, name, length, caller, callee, sqos, gqos) connect((s), (name), (length))

typedef HANDLE WSAEVENT, *LPWSAEVENT;
#define WSA_INVALID_EVENT ((WSAEVENT)NULL)
#define WSA_MAXIMUM_WAIT_EVENTS MAXIMUM_WAIT_OBJECTS
#define WSA_WAIT_EVENT_0 WAIT_OBJECT_0
#define WSA_WAIT_TIMEOUT WAIT_TIMEOUT
#define WSA_WAIT_FAILED WAIT_FAILED
#define WSA_INFINITE INFINITE
#define WSACreateEvent() sn_CreateEvent(NULL, TRUE, FALSE, NULL)
#define WSASetEvent sn_SetEvent
#define WSAResetEvent sn_ResetEvent
#define WSACloseEvent sn_CloseHandle
#define WSA_WAIT_IO_COMPLETION WAIT_IO_COMPLETION
#define WSAWaitForMultipleEvents(count, events, all, ms, alertable) \
	sn_WaitForMultipleObjectsEx((count), (events), (all), (ms), (alertable))

typedef sn_WSANETWORKEVENTS WSANETWORKEVENTS, *LPWSANETWORKEVENTS;
#define WSAEventSelect sn_WSAEventSelect
#define WSAEnumNetworkEvents sn_WSAEnumNetworkEvents

typedef sn_pollfd WSAPOLLFD, *PWSAPOLLFD, *LPWSAPOLLFD;
#define WSAPoll sn_WSAPoll

#define MSG_PARTIAL SN_MSG_PARTIAL
#define WSARecv sn_WSARecv
#define WSASend sn_WSASend
#define WSARecvFrom sn_WSARecvFrom
#define WSASendTo sn_WSASendTo
#define WSAIoctl sn_WSAIoctl
#define IOC_VENDOR 0x18000000u
#define _WSAIOW(group, number) (0x80000000u | (group) | (number))
#define _WSAIOR(group, number) (0x40000000u | (group) | (number))
#define _WSAIORW(group, number) (0xc0000000u | (group) | (number))

/* Messages with data of other protocols, such as IP_PKTINFO. */
typedef sn_WSAMSG WSAMSG, *PWSAMSG, *LPWSAMSG;
typedef struct cmsghdr WSACMSGHDR, *PWSACMSGHDR, *LPWSACMSGHDR;
typedef struct in_pktinfo IN_PKTINFO, *PIN_PKTINFO;
#define WSASendMsg sn_WSASendMsg
#define WSA_CMSG_DATA(header) ((UCHAR *)CMSG_DATA(header))
#define WSA_CMSG_SPACE(size) CMSG_SPACE(size)
#define WSA_CMSG_LEN(size) CMSG_LEN(size)
#define WSA_CMSG_FIRSTHDR(message) \
	((message)->Control.len >= sizeof(WSACMSGHDR) ? (WSACMSGHDR *)(void *)(message)->Control.buf : (WSACMSGHDR *)NULL)
static inline WSACMSGHDR *sn_next_header(const sn_WSAMSG *message, WSACMSGHDR *header)
{
	struct msghdr m;
	memset(&m, 0, sizeof m);
	m.msg_control = message->Control.buf;
	m.msg_controllen = message->Control.len;
	return CMSG_NXTHDR(&m, header);
}
#define WSA_CMSG_NXTHDR(message, header) \
	((header) == NULL ? WSA_CMSG_FIRSTHDR(message) : sn_next_header((message), (header)))
#define WSAGetOverlappedResult sn_WSAGetOverlappedResult

typedef struct _GUID {
	uint32_t Data1;
	uint16_t Data2, Data3;
	uint8_t Data4[8];
} GUID;
#define SIO_GET_EXTENSION_FUNCTION_POINTER 0xc8000006u

#endif
