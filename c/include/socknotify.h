/*
 * Socket state notifications and completion ports for Linux: Windows' interface, from libsocknotify.
 *
 * This header has Windows' types, constants and values, and functions whose names begin with sn_. The headers in the
 * folder "windows" give the functions Windows' names. docs/c.md describes what is the same as on Windows and what is not.
 */
#ifndef SOCKNOTIFY_H
#define SOCKNOTIFY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/time.h>

#if !defined(__linux__) || !defined(__LP64__)
#error "libsocknotify needs Linux on a 64-bit processor"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Types. DWORD and ULONG have 32 bits, as on Windows. */
typedef int BOOL;
typedef uint8_t BYTE, BOOLEAN, UINT8;
typedef char CHAR;
typedef int8_t INT8;
typedef int16_t SHORT, INT16;
typedef uint16_t WORD, USHORT, UINT16;
typedef int32_t INT, LONG, INT32, LONG32;
typedef uint32_t DWORD, ULONG, UINT, UINT32, ULONG32, DWORD32;
typedef long long LONGLONG, LONG64, INT64;
typedef unsigned long long ULONGLONG, DWORD64, UINT64, ULONG64;
typedef uintptr_t ULONG_PTR, DWORD_PTR, UINT_PTR, SIZE_T;
typedef intptr_t LONG_PTR, INT_PTR, SSIZE_T;
typedef void *PVOID, *LPVOID, *HANDLE;
typedef const void *LPCVOID;
typedef wchar_t WCHAR;
typedef char *LPSTR;
typedef const char *LPCSTR;
typedef WCHAR *LPWSTR;
typedef const WCHAR *LPCWSTR;
typedef BOOL *PBOOL, *LPBOOL;
typedef DWORD *PDWORD, *LPDWORD;
typedef LONG *PLONG, *LPLONG;
typedef INT *PINT, *LPINT;
typedef ULONG *PULONG;
typedef ULONG_PTR *PULONG_PTR;
typedef HANDLE *PHANDLE, *LPHANDLE;
typedef BYTE *PBYTE, *LPBYTE;
typedef DWORD_PTR *PDWORD_PTR;
typedef float FLOAT;
typedef uint8_t UCHAR, *PUCHAR;
typedef CHAR *PCHAR;
typedef const CHAR *PCSTR;
typedef CHAR *PSTR;
typedef WCHAR *PWSTR, *PWCHAR;
typedef const WCHAR *PCWSTR;
typedef USHORT *PUSHORT;
typedef WORD *PWORD, *LPWORD;
typedef ULONGLONG *PULONGLONG;
typedef int32_t HRESULT;
typedef void *HMODULE, *HINSTANCE;
typedef INT_PTR (*FARPROC)(void);

typedef union _LARGE_INTEGER {
	__extension__ struct {
		DWORD LowPart;
		LONG HighPart;
	};
	struct {
		DWORD LowPart;
		LONG HighPart;
	} u;
	LONGLONG QuadPart;
} LARGE_INTEGER, *PLARGE_INTEGER;

typedef union _ULARGE_INTEGER {
	__extension__ struct {
		DWORD LowPart;
		DWORD HighPart;
	};
	struct {
		DWORD LowPart;
		DWORD HighPart;
	} u;
	ULONGLONG QuadPart;
} ULARGE_INTEGER, *PULARGE_INTEGER;

/* A SOCKET is a descriptor of the system. */
typedef UINT_PTR SOCKET;
#define INVALID_SOCKET ((SOCKET)(~0))
#define SOCKET_ERROR (-1)
#define INVALID_HANDLE_VALUE ((HANDLE)(LONG_PTR)-1)
#define INFINITE 0xffffffffu

#ifndef TRUE
#define TRUE 1
#define FALSE 0
#endif

typedef struct _OVERLAPPED {
	ULONG_PTR Internal;
	ULONG_PTR InternalHigh;
	__extension__ union {
		__extension__ struct {
			DWORD Offset;
			DWORD OffsetHigh;
		};
		PVOID Pointer;
	};
	HANDLE hEvent;
} OVERLAPPED, *LPOVERLAPPED;

typedef struct _OVERLAPPED_ENTRY {
	ULONG_PTR lpCompletionKey;
	LPOVERLAPPED lpOverlapped;
	ULONG_PTR Internal;
	DWORD dwNumberOfBytesTransferred;
} OVERLAPPED_ENTRY, *LPOVERLAPPED_ENTRY;

/* Socket state notifications. */
typedef struct SOCK_NOTIFY_REGISTRATION {
	SOCKET socket;
	PVOID completionKey;
	UINT16 eventFilter;
	UINT8 operation;
	UINT8 triggerFlags;
	DWORD registrationResult;
} SOCK_NOTIFY_REGISTRATION;

#define SOCK_NOTIFY_REGISTER_EVENT_NONE 0x00
#define SOCK_NOTIFY_REGISTER_EVENT_IN 0x01
#define SOCK_NOTIFY_REGISTER_EVENT_OUT 0x02
#define SOCK_NOTIFY_REGISTER_EVENT_HANGUP 0x04
#define SOCK_NOTIFY_REGISTER_EVENTS_ALL \
	(SOCK_NOTIFY_REGISTER_EVENT_IN | SOCK_NOTIFY_REGISTER_EVENT_OUT | SOCK_NOTIFY_REGISTER_EVENT_HANGUP)

#define SOCK_NOTIFY_EVENT_IN SOCK_NOTIFY_REGISTER_EVENT_IN
#define SOCK_NOTIFY_EVENT_OUT SOCK_NOTIFY_REGISTER_EVENT_OUT
#define SOCK_NOTIFY_EVENT_HANGUP SOCK_NOTIFY_REGISTER_EVENT_HANGUP
#define SOCK_NOTIFY_EVENT_ERR 0x40
#define SOCK_NOTIFY_EVENT_REMOVE 0x80
#define SOCK_NOTIFY_EVENTS_ALL \
	(SOCK_NOTIFY_REGISTER_EVENTS_ALL | SOCK_NOTIFY_EVENT_ERR | SOCK_NOTIFY_EVENT_REMOVE)

#define SOCK_NOTIFY_OP_NONE 0x00
#define SOCK_NOTIFY_OP_ENABLE 0x01
#define SOCK_NOTIFY_OP_DISABLE 0x02
#define SOCK_NOTIFY_OP_REMOVE 0x04

#define SOCK_NOTIFY_TRIGGER_ONESHOT 0x01
#define SOCK_NOTIFY_TRIGGER_PERSISTENT 0x02
#define SOCK_NOTIFY_TRIGGER_LEVEL 0x04
#define SOCK_NOTIFY_TRIGGER_EDGE 0x08
#define SOCK_NOTIFY_TRIGGER_ALL \
	(SOCK_NOTIFY_TRIGGER_ONESHOT | SOCK_NOTIFY_TRIGGER_PERSISTENT | SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_EDGE)

/* sn_SocketNotificationRetrieveEvents returns the SOCK_NOTIFY_EVENT_ bits of a socket's notification. */
static inline UINT32 sn_SocketNotificationRetrieveEvents(const OVERLAPPED_ENTRY *notification)
{
	return notification->dwNumberOfBytesTransferred;
}

/* Results. docs/c.md says which call returns which, and why. */
#define NO_ERROR 0
#define ERROR_SUCCESS 0
#define ERROR_FILE_NOT_FOUND 2
#define ERROR_PATH_NOT_FOUND 3
#define ERROR_TOO_MANY_OPEN_FILES 4
#define ERROR_ACCESS_DENIED 5
#define ERROR_INVALID_HANDLE 6
#define ERROR_NOT_ENOUGH_MEMORY 8
#define ERROR_HANDLE_EOF 38
#define ERROR_NOT_SUPPORTED 50
#define ERROR_NETNAME_DELETED 64
#define ERROR_FILE_EXISTS 80
#define ERROR_INVALID_PARAMETER 87
#define ERROR_BROKEN_PIPE 109
#define ERROR_DISK_FULL 112
#define ERROR_SEM_TIMEOUT 121
#define ERROR_INSUFFICIENT_BUFFER 122
#define ERROR_ALREADY_EXISTS 183
#define ERROR_NO_DATA 232
#define ERROR_PIPE_NOT_CONNECTED 233
#define ERROR_MORE_DATA 234
#define ERROR_MR_MID_NOT_FOUND 317
#define ERROR_ABANDONED_WAIT_0 735
#define ERROR_MOD_NOT_FOUND 126
#define ERROR_PROC_NOT_FOUND 127
#define ERROR_OPERATION_ABORTED 995
#define ERROR_IO_INCOMPLETE 996
#define ERROR_IO_PENDING 997
#define ERROR_NOACCESS 998
#define ERROR_IO_DEVICE 1117
#define ERROR_NOT_FOUND 1168
#define ERROR_CONNECTION_REFUSED 1225
#define ERROR_NETWORK_UNREACHABLE 1231
#define ERROR_HOST_UNREACHABLE 1232
#define ERROR_PORT_UNREACHABLE 1234
#define ERROR_CONNECTION_ABORTED 1236
#define ERROR_UNIDENTIFIED_ERROR 1287
#define ERROR_NO_SYSTEM_RESOURCES 1450

#define WAIT_OBJECT_0 0u
#define WAIT_IO_COMPLETION 0xc0u
#define WAIT_TIMEOUT 258
#define WAIT_FAILED 0xffffffffu

#define WSA_INVALID_HANDLE ERROR_INVALID_HANDLE
#define WSA_NOT_ENOUGH_MEMORY ERROR_NOT_ENOUGH_MEMORY
#define WSA_INVALID_PARAMETER ERROR_INVALID_PARAMETER
#define WSA_OPERATION_ABORTED ERROR_OPERATION_ABORTED
#define WSA_IO_INCOMPLETE ERROR_IO_INCOMPLETE
#define WSA_IO_PENDING ERROR_IO_PENDING
#define WSAEINTR 10004
#define WSAEBADF 10009
#define WSAEACCES 10013
#define WSAEFAULT 10014
#define WSAEINVAL 10022
#define WSAEMFILE 10024
#define WSAEWOULDBLOCK 10035
#define WSAEINPROGRESS 10036
#define WSAEALREADY 10037
#define WSAENOTSOCK 10038
#define WSAEDESTADDRREQ 10039
#define WSAEMSGSIZE 10040
#define WSAEPROTOTYPE 10041
#define WSAENOPROTOOPT 10042
#define WSAEPROTONOSUPPORT 10043
#define WSAESOCKTNOSUPPORT 10044
#define WSAEOPNOTSUPP 10045
#define WSAEPFNOSUPPORT 10046
#define WSAEAFNOSUPPORT 10047
#define WSAEADDRINUSE 10048
#define WSAEADDRNOTAVAIL 10049
#define WSAENETDOWN 10050
#define WSAENETUNREACH 10051
#define WSAENETRESET 10052
#define WSAECONNABORTED 10053
#define WSAECONNRESET 10054
#define WSAENOBUFS 10055
#define WSAEISCONN 10056
#define WSAENOTCONN 10057
#define WSAESHUTDOWN 10058
#define WSAETOOMANYREFS 10059
#define WSAETIMEDOUT 10060
#define WSAECONNREFUSED 10061
#define WSAELOOP 10062
#define WSAENAMETOOLONG 10063
#define WSAEHOSTDOWN 10064
#define WSAEHOSTUNREACH 10065
#define WSAENOTEMPTY 10066
#define WSAEPROCLIM 10067
#define WSAEUSERS 10068
#define WSAEDQUOT 10069
#define WSAESTALE 10070
#define WSAEREMOTE 10071
#define WSASYSNOTREADY 10091
#define WSAVERNOTSUPPORTED 10092
#define WSANOTINITIALISED 10093
#define WSAEDISCON 10101
#define WSATYPE_NOT_FOUND 10109
#define WSAHOST_NOT_FOUND 11001
#define WSATRY_AGAIN 11002
#define WSANO_RECOVERY 11003
#define WSANO_DATA 11004

/* Completion ports. */
HANDLE sn_CreateIoCompletionPort(HANDLE file, HANDLE existingPort, ULONG_PTR completionKey, DWORD concurrentThreads);
DWORD sn_ProcessSocketNotifications(HANDLE port, UINT32 registrationCount, SOCK_NOTIFY_REGISTRATION *registrations,
	UINT32 timeoutMs, ULONG entryCount, OVERLAPPED_ENTRY *entries, UINT32 *receivedCount);
BOOL sn_GetQueuedCompletionStatus(HANDLE port, LPDWORD bytes, PULONG_PTR completionKey, LPOVERLAPPED *overlapped,
	DWORD timeoutMs);
BOOL sn_GetQueuedCompletionStatusEx(HANDLE port, LPOVERLAPPED_ENTRY entries, ULONG entryCount, PULONG removedCount,
	DWORD timeoutMs, BOOL alertable);
BOOL sn_PostQueuedCompletionStatus(HANDLE port, DWORD bytes, ULONG_PTR completionKey, LPOVERLAPPED overlapped);
BOOL sn_CloseHandle(HANDLE object);

/*
 * A signal handler may post. For handlers the library replaces sigaction(), signal(), and
 * __sysv_signal(), which is signal in strict C.
 */

/* The last error, one value per thread. */
DWORD sn_GetLastError(void);
void sn_SetLastError(DWORD error);

/* Calls on sockets. */
SOCKET sn_accept(SOCKET s, struct sockaddr *address, socklen_t *length);
int sn_bind(SOCKET s, const struct sockaddr *name, socklen_t length);
int sn_connect(SOCKET s, const struct sockaddr *name, socklen_t length);
int sn_recv(SOCKET s, void *buffer, int length, int flags);
int sn_recvfrom(SOCKET s, void *buffer, int length, int flags, struct sockaddr *from, socklen_t *fromLength);
int sn_send(SOCKET s, const void *buffer, int length, int flags);
int sn_sendto(SOCKET s, const void *buffer, int length, int flags, const struct sockaddr *to, socklen_t toLength);
SOCKET sn_socket(int family, int type, int protocol);
int sn_getsockopt(SOCKET s, int level, int option, void *value, int *length);
int sn_setsockopt(SOCKET s, int level, int option, const void *value, int length);
#define SN_SO_UPDATE_ACCEPT_CONTEXT 0x700B
#define SN_SO_CONNECT_TIME 0x700C
#define SN_SO_UPDATE_CONNECT_CONTEXT 0x7010
#define SN_SO_EXCLUSIVEADDRUSE (~SO_REUSEADDR)
#define SN_SO_DONTLINGER (~SO_LINGER)
SOCKET sn_WSAAccept(SOCKET s, struct sockaddr *address, int *length, void *condition,
	DWORD_PTR data);
int sn_shutdown(SOCKET s, int how);
int sn_closesocket(SOCKET s);
int sn_ioctlsocket(SOCKET s, long command, void *argument); /* of a DWORD */

/* Overlapped calls on sockets. */
typedef struct _WSABUF {
	ULONG len;
	CHAR *buf;
} WSABUF, *LPWSABUF;

typedef void (*LPWSAOVERLAPPED_COMPLETION_ROUTINE)(DWORD error, DWORD transferred, LPOVERLAPPED overlapped, DWORD flags);

/* A flag of WSARecv and WSASend. The system has another at Windows' value. */
#define SN_MSG_PARTIAL 0x800000

int sn_WSARecv(SOCKET s, LPWSABUF buffers, DWORD bufferCount, LPDWORD received, LPDWORD flags, LPOVERLAPPED overlapped,
	LPWSAOVERLAPPED_COMPLETION_ROUTINE routine);
int sn_WSASend(SOCKET s, LPWSABUF buffers, DWORD bufferCount, LPDWORD sent, DWORD flags, LPOVERLAPPED overlapped,
	LPWSAOVERLAPPED_COMPLETION_ROUTINE routine);
int sn_WSARecvFrom(SOCKET s, LPWSABUF buffers, DWORD bufferCount, LPDWORD received, LPDWORD flags, struct sockaddr *from,
	int *fromLength, LPOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine);
int sn_WSASendTo(SOCKET s, LPWSABUF buffers, DWORD bufferCount, LPDWORD sent, DWORD flags, const struct sockaddr *to,
	int toLength, LPOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine);
BOOL sn_AcceptEx(SOCKET listener, SOCKET connection, PVOID buffer, DWORD dataLength, DWORD localLength,
	DWORD remoteLength, LPDWORD received, LPOVERLAPPED overlapped);
void sn_GetAcceptExSockaddrs(PVOID buffer, DWORD dataLength, DWORD localLength, DWORD remoteLength,
	struct sockaddr **local, int *localSize, struct sockaddr **remote, int *remoteSize);
BOOL sn_ConnectEx(SOCKET s, const struct sockaddr *name, int nameLength, PVOID buffer, DWORD length, LPDWORD sent,
	LPOVERLAPPED overlapped);
#define SN_TF_DISCONNECT 0x01u
#define SN_TF_REUSE_SOCKET 0x02u
BOOL sn_DisconnectEx(SOCKET s, LPOVERLAPPED overlapped, DWORD flags, DWORD reserved);

/* What is sent before and after a file. */
typedef struct sn_TRANSMIT_FILE_BUFFERS {
	LPVOID Head;
	DWORD HeadLength;
	LPVOID Tail;
	DWORD TailLength;
} sn_TRANSMIT_FILE_BUFFERS;
BOOL sn_TransmitFile(SOCKET s, HANDLE file, DWORD bytes, DWORD each, LPOVERLAPPED overlapped, sn_TRANSMIT_FILE_BUFFERS *around,
	DWORD flags);

typedef struct sn_WSAMSG {
	struct sockaddr *name;
	INT namelen;
	LPWSABUF lpBuffers;
	ULONG dwBufferCount;
	WSABUF Control; /* of the layout of a cmsghdr */
	ULONG dwFlags;
} sn_WSAMSG;
int sn_WSARecvMsg(SOCKET s, sn_WSAMSG *message, LPDWORD received, LPOVERLAPPED overlapped,
	LPWSAOVERLAPPED_COMPLETION_ROUTINE routine);
int sn_WSASendMsg(SOCKET s, sn_WSAMSG *message, DWORD flags, LPDWORD sent, LPOVERLAPPED overlapped,
	LPWSAOVERLAPPED_COMPLETION_ROUTINE routine);
int sn_WSAIoctl(SOCKET s, DWORD code, LPVOID in, DWORD inLength, LPVOID out, DWORD outLength, LPDWORD returned,
	LPOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine);

#define SN_SIO_KEEPALIVE_VALS 0x98000004u
#define SN_SIO_UDP_CONNRESET 0x9800000cu
struct sn_tcp_keepalive {
	ULONG onoff;
	ULONG keepalivetime, keepaliveinterval; /* in milliseconds; the system counts seconds */
};

/* Overlapped calls on files. The HANDLE of a file is its descriptor. */
BOOL sn_ReadFile(HANDLE file, LPVOID buffer, DWORD length, LPDWORD read, LPOVERLAPPED overlapped);
BOOL sn_WriteFile(HANDLE file, LPCVOID buffer, DWORD length, LPDWORD written, LPOVERLAPPED overlapped);
BOOL sn_CancelIoEx(HANDLE file, LPOVERLAPPED overlapped);
BOOL sn_GetOverlappedResult(HANDLE file, LPOVERLAPPED overlapped, LPDWORD transferred, BOOL wait);
BOOL sn_WSAGetOverlappedResult(SOCKET s, LPOVERLAPPED overlapped, LPDWORD transferred, BOOL wait, LPDWORD flags);

/* Layouts of Windows on 64-bit processors. */
#ifdef __cplusplus
#define SN_ASSERT(condition) static_assert(condition, #condition)
#else
#define SN_ASSERT(condition) _Static_assert(condition, #condition)
#endif
SN_ASSERT(sizeof(DWORD) == 4 && sizeof(ULONG) == 4 && sizeof(LONG) == 4);
SN_ASSERT(sizeof(OVERLAPPED) == 32 && offsetof(OVERLAPPED, Offset) == 16 && offsetof(OVERLAPPED, hEvent) == 24);
SN_ASSERT(sizeof(OVERLAPPED_ENTRY) == 32 && offsetof(OVERLAPPED_ENTRY, lpOverlapped) == 8 &&
	offsetof(OVERLAPPED_ENTRY, Internal) == 16 && offsetof(OVERLAPPED_ENTRY, dwNumberOfBytesTransferred) == 24);
SN_ASSERT(sizeof(SOCK_NOTIFY_REGISTRATION) == 24 && offsetof(SOCK_NOTIFY_REGISTRATION, completionKey) == 8 &&
	offsetof(SOCK_NOTIFY_REGISTRATION, eventFilter) == 16 && offsetof(SOCK_NOTIFY_REGISTRATION, operation) == 18 &&
	offsetof(SOCK_NOTIFY_REGISTRATION, triggerFlags) == 19 &&
	offsetof(SOCK_NOTIFY_REGISTRATION, registrationResult) == 20);
SN_ASSERT(sizeof(WSABUF) == 16 && offsetof(WSABUF, buf) == 8);

#ifdef __cplusplus
}
#endif

#endif
