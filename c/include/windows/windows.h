/* Windows' names for what programs with an event loop use. See docs/c.md. */
#ifndef SN_WINDOWS_H
#define SN_WINDOWS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* with -std=c11 the C library hides pthreads and more */
#endif

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "../socknotify.h"
#include "sal.h"

#define VOID void
#define CONST const
#define WINAPI
#define CALLBACK
#define APIENTRY
#define WSAAPI
#define PASCAL
#define FORCEINLINE static inline
#define UNREFERENCED_PARAMETER(p) ((void)(p))

#define MAKEWORD(low, high) ((WORD)(((low) & 0xff) | ((high) & 0xff) << 8))
#define LOBYTE(w) ((BYTE)((w) & 0xff))
#define HIBYTE(w) ((BYTE)((w) >> 8 & 0xff))
#define RTL_NUMBER_OF(array) (sizeof(array) / sizeof((array)[0]))
#define ARRAYSIZE(array) RTL_NUMBER_OF(array)
#define _countof(array) RTL_NUMBER_OF(array)
#define CONTAINING_RECORD(address, type, field) ((type *)((char *)(address) - offsetof(type, field)))
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

/* The HANDLE of an open file. */
#define _get_osfhandle(descriptor) ((intptr_t)(descriptor))
#define _open_osfhandle(handle, flags) ((int)(handle))

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
static inline void sn_GetSystemInfo(SYSTEM_INFO *info)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	memset(info, 0, sizeof *info);
	info->dwPageSize = (DWORD)sysconf(_SC_PAGESIZE);
	info->dwNumberOfProcessors = processors > 0 ? (DWORD)processors : 1;
	info->dwActiveProcessorMask = ~(DWORD_PTR)0;
	if (info->dwNumberOfProcessors < 64)
		info->dwActiveProcessorMask = ((DWORD_PTR)1 << info->dwNumberOfProcessors) - 1;
	info->dwAllocationGranularity = info->dwPageSize;
}
#define GetSystemInfo sn_GetSystemInfo

#define CreateThread sn_CreateThread
#define GetCurrentThreadId sn_GetCurrentThreadId
#define GetExitCodeThread sn_GetExitCodeThread
#define WaitForSingleObject sn_WaitForSingleObject
#define WaitForMultipleObjects sn_WaitForMultipleObjects
#define MAXIMUM_WAIT_OBJECTS 64
#define STILL_ACTIVE 259
#define wprintf_s sn_wprintf_s
#define RaiseFailFastException(record, context, flags) abort()
static inline BOOL sn_SwitchToThread(void) { return sched_yield() == 0; }
#define SwitchToThread sn_SwitchToThread
#define YieldProcessor() __asm__ __volatile__("" ::: "memory")

static inline void sn_Sleep(DWORD ms)
{
	struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
	if (ms == INFINITE)
		for (;;)
			pause();
	while (nanosleep(&t, &t) != 0) {
	}
}
#define Sleep sn_Sleep

static inline ULONGLONG sn_GetTickCount64(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (ULONGLONG)t.tv_sec * 1000 + (ULONGLONG)t.tv_nsec / 1000000;
}
#define GetTickCount64 sn_GetTickCount64

/* An SRWLOCK is a lock of pthreads, and so larger than on Windows. */
typedef struct {
	pthread_rwlock_t lock;
} SRWLOCK, *PSRWLOCK;
#define SRWLOCK_INIT {PTHREAD_RWLOCK_INITIALIZER}
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
#define InitializeCriticalSectionAndSpinCount(c, spins) (sn_InitializeCriticalSection(c), TRUE)
#define DeleteCriticalSection(c) ((void)pthread_mutex_destroy(&(c)->lock))
#define EnterCriticalSection(c) ((void)pthread_mutex_lock(&(c)->lock))
#define TryEnterCriticalSection(c) (pthread_mutex_trylock(&(c)->lock) == 0)
#define LeaveCriticalSection(c) ((void)pthread_mutex_unlock(&(c)->lock))

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
#define InterlockedIncrement64 InterlockedIncrement
#define InterlockedDecrement64 InterlockedDecrement
#define InterlockedAdd64 InterlockedAdd
#define InterlockedExchangeAdd64 InterlockedExchangeAdd
#define InterlockedExchange64 InterlockedExchange
#define InterlockedCompareExchange64 InterlockedCompareExchange
#define MemoryBarrier() __atomic_thread_fence(__ATOMIC_SEQ_CST)

#endif
