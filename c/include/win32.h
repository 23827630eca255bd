/*
 * What programs for Windows need besides the functions of socknotify.h. The headers in the folder "windows" give these
 * Windows' names, too.
 */
#ifndef SN_WIN32_H
#define SN_WIN32_H

#include "socknotify.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Texts of errors. */
DWORD sn_FormatMessageA(DWORD flags, LPCVOID source, DWORD error, DWORD language, LPSTR buffer, DWORD size, void *arguments);
DWORD sn_FormatMessageW(DWORD flags, LPCVOID source, DWORD error, DWORD language, LPWSTR buffer, DWORD size, void *arguments);

/* A set of select is a list of sockets, of which any number may be in it. A program may choose its length. */
#ifndef SN_FD_SETSIZE
#define SN_FD_SETSIZE 1024
#endif
typedef struct sn_fd_set {
	UINT fd_count;
	SOCKET fd_array[SN_FD_SETSIZE];
} sn_fd_set;
int sn_select(int count, sn_fd_set *reads, sn_fd_set *writes, sn_fd_set *excepts,
	const struct timeval *timeout);

/* poll, of sockets. The constants are the system's. */
typedef struct sn_pollfd {
	SOCKET fd;
	SHORT events;
	SHORT revents;
} sn_pollfd;
int sn_WSAPoll(sn_pollfd *fds, ULONG count, INT timeoutMs);

/* Network events. */
#define FD_READ_BIT 0
#define FD_WRITE_BIT 1
#define FD_OOB_BIT 2
#define FD_ACCEPT_BIT 3
#define FD_CONNECT_BIT 4
#define FD_CLOSE_BIT 5
#define FD_MAX_EVENTS 10
#define FD_READ (1 << FD_READ_BIT)
#define FD_WRITE (1 << FD_WRITE_BIT)
#define FD_OOB (1 << FD_OOB_BIT)
#define FD_ACCEPT (1 << FD_ACCEPT_BIT)
#define FD_CONNECT (1 << FD_CONNECT_BIT)
#define FD_CLOSE (1 << FD_CLOSE_BIT)
typedef struct sn_WSANETWORKEVENTS {
	LONG lNetworkEvents;
	INT iErrorCode[FD_MAX_EVENTS];
} sn_WSANETWORKEVENTS;
int sn_WSAEventSelect(SOCKET s, HANDLE event, long events);
int sn_WSAEnumNetworkEvents(SOCKET s, HANDLE event, sn_WSANETWORKEVENTS *events);

/* Names of hosts. The results of sn_getaddrinfo and sn_getnameinfo are errors of Winsock. */
struct addrinfo;
struct hostent;
int sn_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **list);
int sn_getnameinfo(const struct sockaddr *address, socklen_t length, char *node, DWORD nodeSize, char *service,
	DWORD serviceSize, int flags);
struct hostent *sn_gethostbyname(const char *name);
const char *sn_gai_strerror(int error);
int sn_WSAAddressToStringA(struct sockaddr *address, DWORD length, void *protocol, LPSTR text, LPDWORD size);
int sn_WSAStringToAddressA(LPSTR text, INT family, void *protocol, struct sockaddr *address, LPINT length);

/* Threads. */
typedef DWORD (*LPTHREAD_START_ROUTINE)(LPVOID);
HANDLE sn_CreateThread(void *attributes, SIZE_T stackSize, LPTHREAD_START_ROUTINE start, LPVOID argument, DWORD flags,
	LPDWORD id);
DWORD sn_GetCurrentThreadId(void);
DWORD sn_WaitForSingleObject(HANDLE object, DWORD timeoutMs);
DWORD sn_WaitForMultipleObjects(DWORD count, const HANDLE *objects, BOOL all, DWORD timeoutMs);
/* The thread calls its completion routines in a wait that is alertable, which then returns WAIT_IO_COMPLETION. */
DWORD sn_WaitForSingleObjectEx(HANDLE object, DWORD timeoutMs, BOOL alertable);
DWORD sn_WaitForMultipleObjectsEx(DWORD count, const HANDLE *objects, BOOL all, DWORD timeoutMs, BOOL alertable);
DWORD sn_SleepEx(DWORD ms, BOOL alertable);
DWORD sn_ResumeThread(HANDLE thread);
void sn_ExitThread(DWORD code);
BOOL sn_GetExitCodeThread(HANDLE thread, LPDWORD code);
int sn_wprintf_s(const WCHAR *format, ...);
void sn_Sleep(DWORD ms);

/* Events. */
HANDLE sn_CreateEvent(void *attributes, BOOL manualReset, BOOL initialState, const void *name);
BOOL sn_SetEvent(HANDLE event);
BOOL sn_ResetEvent(HANDLE event);

/* The system. */
typedef struct _SYSTEM_INFO {
	WORD wProcessorArchitecture;
	WORD wReserved;
	DWORD dwPageSize;
	LPVOID lpMinimumApplicationAddress;
	LPVOID lpMaximumApplicationAddress;
	DWORD_PTR dwActiveProcessorMask;
	DWORD dwNumberOfProcessors;
	DWORD dwProcessorType;
	DWORD dwAllocationGranularity;
	WORD wProcessorLevel;
	WORD wProcessorRevision;
} SYSTEM_INFO, *LPSYSTEM_INFO;

/* The processors and the size of a page. Members that are the processor's kind are 0. */
void sn_GetSystemInfo(SYSTEM_INFO *info);
DWORD sn_GetCurrentProcessId(void);
HMODULE sn_LoadLibraryA(LPCSTR name);
HMODULE sn_LoadLibraryW(LPCWSTR name);
FARPROC sn_GetProcAddress(HMODULE module, LPCSTR name);

/*
 * SIGINT is CTRL_C_EVENT, and SIGTERM CTRL_CLOSE_EVENT. A thread that the library starts calls the
 * handlers.
 */
typedef BOOL (*PHANDLER_ROUTINE)(DWORD event);
#define CTRL_C_EVENT 0
#define CTRL_BREAK_EVENT 1
#define CTRL_CLOSE_EVENT 2
#define CTRL_LOGOFF_EVENT 5
#define CTRL_SHUTDOWN_EVENT 6
BOOL sn_SetConsoleCtrlHandler(PHANDLER_ROUTINE handler, BOOL adds);

#ifdef __cplusplus
}
#endif

#endif
