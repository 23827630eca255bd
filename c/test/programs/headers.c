// Everything that the headers define compiles, in C and in C++.
#define INITGUID
#include <winsock2.h>
#include <ws2tcpip.h>
#include <mswsock.h>
#include <mstcpip.h>
#include <ws2ipdef.h>
#include <mmsystem.h>
#include <direct.h>
#include <windows.h>
#include <socknotify.h>

#include <stdio.h>

typedef struct {
	int recv, send, accept, socket; // members keep the names of functions
} members;

static SRWLOCK lock = SRWLOCK_INIT;
static SRWLOCK nested[2] = {SRWLOCK_INIT, SRWLOCK_INIT};
static CRITICAL_SECTION section;

static DWORD WINAPI thread(_In_ LPVOID argument)
{
	InterlockedIncrement((LONG *)argument);
	return 7;
}

int main(void)
{
	members m = {1, 2, 3, 4};
	WSADATA data;
	if (WSAStartup(MAKEWORD(2, 2), &data) != 0 || LOBYTE(data.wVersion) != 2 || m.recv + m.send + m.accept + m.socket != 10)
		return 1;
	AcquireSRWLockExclusive(&lock);
	if (TryAcquireSRWLockShared(&lock))
		return 2;
	ReleaseSRWLockExclusive(&lock);
	AcquireSRWLockShared(&nested[1]);
	ReleaseSRWLockShared(&nested[1]);
	InitializeCriticalSection(&section);
	EnterCriticalSection(&section);
	if (!TryEnterCriticalSection(&section))
		return 3;
	LeaveCriticalSection(&section);
	LeaveCriticalSection(&section);
	DeleteCriticalSection(&section);

	LONG n = 5;
	PVOID p = NULL, q = &n;
	if (InterlockedAdd(&n, 2) != 7 || InterlockedExchange(&n, 1) != 7 || InterlockedCompareExchange(&n, 9, 1) != 1 || n != 9 ||
		InterlockedExchangePointer(&p, q) != NULL || p != q || InterlockedDecrement(&n) != 8)
		return 4;
	HANDLE h[2];
	DWORD id = 0, code = 0;
	for (int i = 0; i < 2; i++)
		if ((h[i] = CreateThread(NULL, 1 << 20, thread, &n, 0, &id)) == NULL || id == 0)
			return 5;
	if (WaitForMultipleObjects(2, h, TRUE, INFINITE) != WAIT_OBJECT_0 || n != 10)
		return 6;
	if (!GetExitCodeThread(h[1], &code) || code != 7 || WaitForSingleObject(h[0], 0) != WAIT_OBJECT_0)
		return 7;
	CloseHandle(h[0]);
	CloseHandle(h[1]);

	SOCKET s = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
	struct sockaddr_in address;
	int length = sizeof address, yes = 1;
	ZeroMemory(&address, sizeof address);
	address.sin_family = AF_INET;
	if (s == INVALID_SOCKET || setsockopt(s, SOL_SOCKET, SO_REUSEADDR, (const char *)&yes, sizeof yes) != 0 ||
		bind((int)s, (SOCKADDR *)&address, length) != 0 || getsockname(s, (SOCKADDR *)&address, &length) != 0 ||
		address.sin_port == 0 || closesocket(s) != 0)
		return 8;
	SOCKADDR_STORAGE any;
	ZeroMemory(&any, sizeof any);
	any.ss_family = AF_INET6;
	SS_PORT(&any) = htons(80);
	INETADDR_SETLOOPBACK((SOCKADDR *)&any);
	const SOCKADDR_IN6 *at6 = (SOCKADDR_IN6 *)&any;
	if (at6->sin6_port != 0 || at6->sin6_family != AF_INET6 || !IN6_IS_ADDR_LOOPBACK(&at6->sin6_addr))
		return 10;
	SYSTEM_INFO info;
	GetSystemInfo(&info);
	if (info.dwNumberOfProcessors == 0 || info.dwPageSize < 4096 || info.dwActiveProcessorMask == 0)
		return 9;
	WSACleanup();
	Sleep(0);
	return GetTickCount64() == 0;
}
