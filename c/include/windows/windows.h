/* Windows' names for what programs with an event loop use. See docs/c.md. */
#ifndef SN_WINDOWS_H
#define SN_WINDOWS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* with -std=c11 the C library hides pthreads and more */
#endif

/*
 * FD_SETSIZE is the number of sockets in a set, which a program may define. The system's header,
 * which others include, has a macro of this name.
 */
#if defined(FD_SETSIZE) && !defined(_SYS_SELECT_H)
#pragma push_macro("FD_SETSIZE")
#include <sys/select.h>
#pragma pop_macro("FD_SETSIZE")
#endif

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#include "msvc.h"
#include <sys/select.h>
#define SN_FD_SETSIZE FD_SETSIZE
#include "sockets.h"
#include "sal.h"

#define VOID void
#define CONST const
#define IN
#define OUT
#define OPTIONAL
#define WINAPI
#define WINAPIV
#define NTAPI
#define CALLBACK
#define APIENTRY
#define WSAAPI
#define PASCAL
#define FORCEINLINE static inline
#define FAR
#define NEAR

/* Characters. */
#ifdef UNICODE
typedef WCHAR TCHAR;
#define TEXT(s) L##s
#else
typedef char TCHAR;
#define TEXT(s) s
#endif
typedef TCHAR *LPTSTR, *PTSTR;
typedef const TCHAR *LPCTSTR, *PCTSTR;
#define MAX_PATH 260
#define MAXDWORD 0xffffffff

#define S_OK ((HRESULT)0)
#define S_FALSE ((HRESULT)1)
#define E_FAIL ((HRESULT)0x80004005)
#define E_INVALIDARG ((HRESULT)0x80070057)
#define E_OUTOFMEMORY ((HRESULT)0x8007000e)
#define HRESULT_FROM_WIN32(error) \
	((HRESULT)(error) <= 0 ? (HRESULT)(error) : (HRESULT)(((error) & 0xffff) | 0x80070000))
typedef LONG NTSTATUS;
#define SUCCEEDED(result) ((HRESULT)(result) >= 0)
#define FAILED(result) ((HRESULT)(result) < 0)
#define UNREFERENCED_PARAMETER(p) ((void)(p))

#define MAKEWORD(low, high) ((WORD)(((low) & 0xff) | ((high) & 0xff) << 8))
#define LOBYTE(w) ((BYTE)((w) & 0xff))
#define HIBYTE(w) ((BYTE)((w) >> 8 & 0xff))
#define RTL_NUMBER_OF(array) (sizeof(array) / sizeof((array)[0]))
#define ARRAYSIZE(array) RTL_NUMBER_OF(array)
#define _countof(array) RTL_NUMBER_OF(array)
#define CONTAINING_RECORD(address, type, field) ((type *)((char *)(address) - offsetof(type, field)))
#define MAKELONG(low, high) ((LONG)((WORD)(low) | (DWORD)(WORD)(high) << 16))
#define LOWORD(n) ((WORD)((DWORD_PTR)(n) & 0xffff))
#define HIWORD(n) ((WORD)((DWORD_PTR)(n) >> 16 & 0xffff))
#define MoveMemory(to, from, size) memmove((to), (from), (size))
#define FillMemory(to, size, value) memset((to), (value), (size))
#define SecureZeroMemory(to, size) explicit_bzero((to), (size))
#define ZeroMemory(to, size) memset((to), 0, (size))
#define CopyMemory(to, from, size) memcpy((to), (from), (size))
#define _ASSERT(condition) assert(condition)
#define _ASSERTE(condition) assert(condition)

#define CreateIoCompletionPort sn_CreateIoCompletionPort
#define GetQueuedCompletionStatus sn_GetQueuedCompletionStatus
#define GetQueuedCompletionStatusEx sn_GetQueuedCompletionStatusEx
#define PostQueuedCompletionStatus sn_PostQueuedCompletionStatus
#define CloseHandle sn_CloseHandle
#define GetLastError sn_GetLastError
#define SetLastError sn_SetLastError
#define FormatMessageA sn_FormatMessageA
#define FormatMessageW sn_FormatMessageW
#ifdef UNICODE
#define FormatMessage FormatMessageW
#else
#define FormatMessage FormatMessageA
#endif
#define FORMAT_MESSAGE_ALLOCATE_BUFFER 0x0100
#define FORMAT_MESSAGE_IGNORE_INSERTS 0x0200
#define FORMAT_MESSAGE_FROM_SYSTEM 0x1000
#define LANG_NEUTRAL 0x00
#define SUBLANG_NEUTRAL 0x00
#define SUBLANG_DEFAULT 0x01
#define MAKELANGID(language, sub) ((WORD)((WORD)(sub) << 10 | (WORD)(language)))
static inline HANDLE sn_LocalFree(HANDLE memory)
{
	free(memory);
	return NULL;
}
#define LocalFree sn_LocalFree

#define ReadFile sn_ReadFile
#define WriteFile sn_WriteFile
#define CancelIoEx sn_CancelIoEx
#define GetOverlappedResult sn_GetOverlappedResult
#define HasOverlappedIoCompleted(o) (__atomic_load_n(&(o)->Internal, __ATOMIC_ACQUIRE) != STATUS_PENDING)
#define STATUS_PENDING 0x103u

/* The standard input has descriptor 0, which is no handle. */
#define STD_OUTPUT_HANDLE ((DWORD)-11)
#define STD_ERROR_HANDLE ((DWORD)-12)
#define GetStdHandle(which) \
	((HANDLE)(LONG_PTR)((which) == STD_OUTPUT_HANDLE ? 1 : (which) == STD_ERROR_HANDLE ? 2 : -1))
#define WriteConsoleA(console, text, length, written, reserved) \
	((void)(reserved), sn_WriteFile((console), (text), (length), (written), NULL))
#define WriteConsole WriteConsoleA
#define lstrlenA(s) ((int)strlen(s))
#ifndef UNICODE
#define lstrlen lstrlenA
#endif

/* There are no windows. A message goes to the standard error, and its only button is OK. */
typedef void *HWND;
#define MB_OK 0x00
#define MB_ICONERROR 0x10
#define MB_ICONHAND MB_ICONERROR
#define MB_ICONSTOP MB_ICONERROR
#define MB_ICONQUESTION 0x20
#define MB_ICONWARNING 0x30
#define MB_ICONEXCLAMATION MB_ICONWARNING
#define MB_ICONINFORMATION 0x40
#define MB_ICONASTERISK MB_ICONINFORMATION
#define IDOK 1
static inline int sn_MessageBoxA(HWND owner, LPCSTR text, LPCSTR caption, UINT type)
{
	(void)owner;
	if ((type & 0xf) != MB_OK) { /* which asks */
		sn_SetLastError(ERROR_NOT_SUPPORTED);
		return 0;
	}
	fprintf(stderr, "%s: %s\n", caption != NULL ? caption : "Error", text != NULL ? text : "");
	return IDOK;
}
#define MessageBoxA sn_MessageBoxA
#ifndef UNICODE
#define MessageBox MessageBoxA
#endif

/* The HANDLE of an open file. */
#define _get_osfhandle(descriptor) ((intptr_t)(descriptor))
#define _fileno fileno
#define _open_osfhandle(handle, flags) ((int)(handle))

#define GetSystemInfo sn_GetSystemInfo

#define GetCurrentProcessId sn_GetCurrentProcessId
#define CreateThread sn_CreateThread
#define CREATE_SUSPENDED 0x4
#define ResumeThread sn_ResumeThread
#define ExitThread sn_ExitThread
#define ExitProcess(code) exit((int)(code))
#define GetCurrentThreadId sn_GetCurrentThreadId
#define GetExitCodeThread sn_GetExitCodeThread
#define WaitForSingleObject sn_WaitForSingleObject
#define WaitForMultipleObjects sn_WaitForMultipleObjects
#define WaitForSingleObjectEx sn_WaitForSingleObjectEx
#define WaitForMultipleObjectsEx sn_WaitForMultipleObjectsEx
#define MAXIMUM_WAIT_OBJECTS 64
#define CreateEvent sn_CreateEvent
#define CreateEventA sn_CreateEvent
#define CreateEventW sn_CreateEvent
#define SetEvent sn_SetEvent
#define ResetEvent sn_ResetEvent
#define SetConsoleCtrlHandler sn_SetConsoleCtrlHandler
#define STILL_ACTIVE 259
#define wprintf_s sn_wprintf_s
#define RaiseFailFastException(record, context, flags) abort()
static inline BOOL sn_SwitchToThread(void) { return sched_yield() == 0; }
#define SwitchToThread sn_SwitchToThread
#define YieldProcessor() __asm__ __volatile__("" ::: "memory")

#define Sleep sn_Sleep
#define SleepEx sn_SleepEx

/* There is no debugger that reads texts. */
static inline void sn_OutputDebugStringA(LPCSTR text) { (void)text; }
static inline void sn_OutputDebugStringW(LPCWSTR text) { (void)text; }
#define OutputDebugStringA sn_OutputDebugStringA
#define OutputDebugStringW sn_OutputDebugStringW
#ifdef UNICODE
#define OutputDebugString OutputDebugStringW
#else
#define OutputDebugString OutputDebugStringA
#endif

static inline ULONGLONG sn_GetTickCount64(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (ULONGLONG)t.tv_sec * 1000 + (ULONGLONG)t.tv_nsec / 1000000;
}
#define GetTickCount64 sn_GetTickCount64

typedef struct _SYSTEMTIME {
	WORD wYear, wMonth, wDayOfWeek, wDay, wHour, wMinute, wSecond, wMilliseconds;
} SYSTEMTIME, *PSYSTEMTIME, *LPSYSTEMTIME;
static inline void sn_get_time(SYSTEMTIME *to, struct tm *(*convert)(const time_t *, struct tm *))
{
	struct timespec now;
	struct tm t;
	clock_gettime(CLOCK_REALTIME, &now);
	convert(&now.tv_sec, &t);
	to->wYear = (WORD)(t.tm_year + 1900);
	to->wMonth = (WORD)(t.tm_mon + 1);
	to->wDayOfWeek = (WORD)t.tm_wday;
	to->wDay = (WORD)t.tm_mday;
	to->wHour = (WORD)t.tm_hour;
	to->wMinute = (WORD)t.tm_min;
	to->wSecond = (WORD)t.tm_sec;
	to->wMilliseconds = (WORD)(now.tv_nsec / 1000000);
}
#define GetSystemTime(to) sn_get_time((to), gmtime_r)
#define GetLocalTime(to) sn_get_time((to), localtime_r)

/* A FILETIME counts 100 ns from the year 1601. */
typedef struct _FILETIME {
	DWORD dwLowDateTime, dwHighDateTime;
} FILETIME, *PFILETIME, *LPFILETIME;
static inline void sn_GetSystemTimeAsFileTime(FILETIME *to)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	ULONGLONG n = ((ULONGLONG)now.tv_sec + 11644473600u) * 10000000 + (ULONGLONG)now.tv_nsec / 100;
	to->dwLowDateTime = (DWORD)n;
	to->dwHighDateTime = (DWORD)(n >> 32);
}
#define GetSystemTimeAsFileTime sn_GetSystemTimeAsFileTime
#define GetSystemTimePreciseAsFileTime sn_GetSystemTimeAsFileTime

static inline DWORD sn_GetTickCount(void) { return (DWORD)sn_GetTickCount64(); }
#define GetTickCount sn_GetTickCount

static inline BOOL sn_QueryPerformanceCounter(LARGE_INTEGER *count)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	count->QuadPart = (LONGLONG)t.tv_sec * 1000000000 + t.tv_nsec;
	return TRUE;
}
#define QueryPerformanceCounter sn_QueryPerformanceCounter
static inline BOOL sn_QueryPerformanceFrequency(LARGE_INTEGER *frequency)
{
	frequency->QuadPart = 1000000000;
	return TRUE;
}
#define QueryPerformanceFrequency sn_QueryPerformanceFrequency

/* The heap is that of malloc. */
#define HEAP_ZERO_MEMORY 0x8
#define GetProcessHeap() ((HANDLE)1)
static inline LPVOID sn_HeapAlloc(DWORD flags, SIZE_T size)
{
	if (size == 0)
		size = 1; /* which is a block, too */
	return flags & HEAP_ZERO_MEMORY ? calloc(1, size) : malloc(size);
}
static inline BOOL sn_HeapFree(LPVOID memory)
{
	free(memory);
	return TRUE;
}
#define HeapAlloc(heap, flags, size) ((void)(heap), sn_HeapAlloc((flags), (size)))
#define HeapFree(heap, flags, memory) ((void)(heap), sn_HeapFree(memory))
#define GMEM_FIXED 0
#define GMEM_ZEROINIT 0x40
#define GPTR 0x40
#define GlobalAlloc(flags, size) \
	sn_HeapAlloc((flags) & GMEM_ZEROINIT ? HEAP_ZERO_MEMORY : 0, (size))
#define GlobalFree sn_LocalFree
#define LPTR 0x40
#define LocalAlloc GlobalAlloc

/* The modules that have functions of this library have a handle. */
#define LoadLibraryA sn_LoadLibraryA
#define LoadLibraryW sn_LoadLibraryW
#define GetModuleHandleA sn_LoadLibraryA
#define GetModuleHandleW sn_LoadLibraryW
#ifdef UNICODE
#define LoadLibrary LoadLibraryW
#define GetModuleHandle GetModuleHandleW
#else
#define LoadLibrary LoadLibraryA
#define GetModuleHandle GetModuleHandleA
#endif
#define GetProcAddress sn_GetProcAddress
#define FreeLibrary(module) ((void)(module), TRUE)

/* No call completes at once, so that none has to be skipped. */
#define FILE_SKIP_COMPLETION_PORT_ON_SUCCESS 0x1
#define FILE_SKIP_SET_EVENT_ON_HANDLE 0x2
static inline BOOL sn_SetFileCompletionNotificationModes(HANDLE file, UCHAR flags)
{
	(void)file, (void)flags;
	return TRUE;
}
#define SetFileCompletionNotificationModes sn_SetFileCompletionNotificationModes

/* An SRWLOCK is a lock of pthreads, and so larger than on Windows. */
typedef struct {
	pthread_rwlock_t lock;
} SRWLOCK, *PSRWLOCK;
#define SRWLOCK_INIT {PTHREAD_RWLOCK_INITIALIZER}
#define RTL_SRWLOCK_INIT SRWLOCK_INIT
#define InitializeSRWLock(l) ((void)pthread_rwlock_init(&(l)->lock, NULL))
#define AcquireSRWLockExclusive(l) ((void)pthread_rwlock_wrlock(&(l)->lock))
#define ReleaseSRWLockExclusive(l) ((void)pthread_rwlock_unlock(&(l)->lock))
#define TryAcquireSRWLockExclusive(l) (pthread_rwlock_trywrlock(&(l)->lock) == 0)
#define AcquireSRWLockShared(l) ((void)pthread_rwlock_rdlock(&(l)->lock))
#define ReleaseSRWLockShared(l) ((void)pthread_rwlock_unlock(&(l)->lock))
#define TryAcquireSRWLockShared(l) (pthread_rwlock_tryrdlock(&(l)->lock) == 0)

/* A CRITICAL_SECTION is a recursive mutex. */
typedef struct {
	pthread_mutex_t lock;
} CRITICAL_SECTION, *LPCRITICAL_SECTION;

static inline void sn_InitializeCriticalSection(CRITICAL_SECTION *c)
{
	pthread_mutexattr_t recursive;
	pthread_mutexattr_init(&recursive);
	pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&c->lock, &recursive);
	pthread_mutexattr_destroy(&recursive);
}
#define InitializeCriticalSection sn_InitializeCriticalSection
static inline BOOL sn_InitializeCriticalSectionAndSpinCount(CRITICAL_SECTION *c, DWORD spins)
{
	(void)spins;
	sn_InitializeCriticalSection(c);
	return TRUE;
}
#define InitializeCriticalSectionAndSpinCount sn_InitializeCriticalSectionAndSpinCount
/* These are functions, so that a program may write ::EnterCriticalSection. */
static inline void sn_DeleteCriticalSection(CRITICAL_SECTION *c) { pthread_mutex_destroy(&c->lock); }
static inline void sn_EnterCriticalSection(CRITICAL_SECTION *c) { pthread_mutex_lock(&c->lock); }
static inline BOOL sn_TryEnterCriticalSection(CRITICAL_SECTION *c) { return pthread_mutex_trylock(&c->lock) == 0; }
static inline void sn_LeaveCriticalSection(CRITICAL_SECTION *c) { pthread_mutex_unlock(&c->lock); }
#define DeleteCriticalSection sn_DeleteCriticalSection
#define EnterCriticalSection sn_EnterCriticalSection
#define TryEnterCriticalSection sn_TryEnterCriticalSection
#define LeaveCriticalSection sn_LeaveCriticalSection

/* Atomic operations. They return the old value, except Increment, Decrement, which return the new one. */
#define InterlockedIncrement(p) __atomic_add_fetch((p), 1, __ATOMIC_SEQ_CST)
#define InterlockedDecrement(p) __atomic_sub_fetch((p), 1, __ATOMIC_SEQ_CST)
#define InterlockedAdd(p, n) __atomic_add_fetch((p), (n), __ATOMIC_SEQ_CST)
#define InterlockedExchangeAdd(p, n) __atomic_fetch_add((p), (n), __ATOMIC_SEQ_CST)
#define InterlockedExchange(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define InterlockedAnd(p, v) __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST)
#define InterlockedOr(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define InterlockedXor(p, v) __atomic_fetch_xor((p), (v), __ATOMIC_SEQ_CST)
#define InterlockedCompareExchange(p, v, old) __sync_val_compare_and_swap((p), (old), (v))
#define InterlockedExchangePointer(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define InterlockedCompareExchangePointer(p, v, old) __sync_val_compare_and_swap((p), (old), (v))
#define InterlockedExchange8 InterlockedExchange
#define InterlockedExchange16 InterlockedExchange
#define InterlockedIncrement16 InterlockedIncrement
#define InterlockedDecrement16 InterlockedDecrement
#define InterlockedIncrement64 InterlockedIncrement
#define InterlockedDecrement64 InterlockedDecrement
#define InterlockedAdd64 InterlockedAdd
#define InterlockedExchangeAdd64 InterlockedExchangeAdd
#define InterlockedExchange64 InterlockedExchange
#define InterlockedCompareExchange64 InterlockedCompareExchange
/* The compiler's names of these. */
#define _InterlockedIncrement InterlockedIncrement
#define _InterlockedDecrement InterlockedDecrement
#define _InterlockedExchangeAdd InterlockedExchangeAdd
#define _InterlockedExchange InterlockedExchange
#define _InterlockedAnd InterlockedAnd
#define _InterlockedOr InterlockedOr
#define _InterlockedXor InterlockedXor
#define _InterlockedCompareExchange InterlockedCompareExchange
#define _InterlockedExchangePointer InterlockedExchangePointer
#define _InterlockedCompareExchangePointer InterlockedCompareExchangePointer
#define _InterlockedIncrement64 InterlockedIncrement64
#define _InterlockedDecrement64 InterlockedDecrement64
#define _InterlockedExchangeAdd64 InterlockedExchangeAdd64
#define _InterlockedExchange64 InterlockedExchange64
#define _InterlockedCompareExchange64 InterlockedCompareExchange64
#define MemoryBarrier() __atomic_thread_fence(__ATOMIC_SEQ_CST)

#include "crt.h"

#ifndef WIN32_LEAN_AND_MEAN
#include "winsock2.h"
#endif

#endif
