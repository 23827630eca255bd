#define _GNU_SOURCE
#include "../layer.h"
#include "../include/win32.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

void sn_GetSystemInfo(SYSTEM_INFO *info)
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

DWORD sn_GetCurrentProcessId(void) { return (DWORD)getpid(); }

void sn_Sleep(DWORD ms)
{
	struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
	if (ms == INFINITE)
		for (;;)
			pause();
	while (nanosleep(&t, &t) != 0) {
	}
}

// The functions of Windows that GetProcAddress finds, in any of the modules that have some of them.
#define FUNCTION(name) {#name, (FARPROC)(void (*)(void))sn_##name}
static const struct {
	const char *name;
	FARPROC function;
} functions[] = {
	FUNCTION(AcceptEx),
	FUNCTION(CancelIoEx),
	FUNCTION(CloseHandle),
	FUNCTION(ConnectEx),
	FUNCTION(CreateIoCompletionPort),
	FUNCTION(CreateThread),
	FUNCTION(DisconnectEx),
	FUNCTION(FormatMessageA),
	FUNCTION(FormatMessageW),
	FUNCTION(GetAcceptExSockaddrs),
	FUNCTION(GetCurrentThreadId),
	FUNCTION(GetLastError),
	FUNCTION(GetOverlappedResult),
	FUNCTION(GetQueuedCompletionStatus),
	FUNCTION(GetQueuedCompletionStatusEx),
	FUNCTION(GetSystemInfo),
	FUNCTION(PostQueuedCompletionStatus),
	FUNCTION(ProcessSocketNotifications),
	FUNCTION(ReadFile),
	FUNCTION(ResetEvent),
	FUNCTION(SetConsoleCtrlHandler),
	FUNCTION(SetEvent),
	FUNCTION(SetLastError),
	FUNCTION(Sleep),
	FUNCTION(SleepEx),
	FUNCTION(TransmitFile),
	FUNCTION(WSAEnumNetworkEvents),
	FUNCTION(WSAEventSelect),
	FUNCTION(WSAGetOverlappedResult),
	FUNCTION(WSAIoctl),
	FUNCTION(WSAPoll),
	FUNCTION(WSARecv),
	FUNCTION(WSARecvFrom),
	FUNCTION(WSASend),
	FUNCTION(WSASendMsg),
	FUNCTION(WSASendTo),
	FUNCTION(WaitForMultipleObjects),
	FUNCTION(WaitForSingleObject),
	FUNCTION(WriteFile),
	FUNCTION(accept),
	FUNCTION(bind),
	FUNCTION(closesocket),
	FUNCTION(connect),
	FUNCTION(getaddrinfo),
	FUNCTION(gethostbyname),
	FUNCTION(getnameinfo),
	FUNCTION(getsockopt),
	FUNCTION(ioctlsocket),
	FUNCTION(recv),
	FUNCTION(recvfrom),
	FUNCTION(select),
	FUNCTION(send),
	FUNCTION(sendto),
	FUNCTION(setsockopt),
	FUNCTION(shutdown),
	FUNCTION(socket),
	{"WSAGetLastError", (FARPROC)(void (*)(void))sn_GetLastError},
	{"WSASetLastError", (FARPROC)(void (*)(void))sn_SetLastError},
};

HMODULE sn_LoadLibraryA(LPCSTR name)
{
	// The handle of a module is an address, whose low bits would say that the module is only data.
	static const struct {
		_Alignas(16) char name[16];
	} modules[] = {{"ws2_32"}, {"mswsock"}, {"kernel32"}, {"kernelbase"}, {"ntdll"}};
	for (size_t i = 0; name != NULL && i < sizeof modules / sizeof modules[0]; i++) {
		size_t n = strlen(modules[i].name);
		if (strncasecmp(name, modules[i].name, n) == 0 &&
			(name[n] == 0 || strcasecmp(name + n, ".dll") == 0))
			return (HMODULE)(uintptr_t)&modules[i];
	}
	sn_fail(ERROR_MOD_NOT_FOUND);
	return NULL;
}

HMODULE sn_LoadLibraryW(LPCWSTR name)
{
	char narrow[16] = "";
	for (size_t i = 0; name != NULL && name[i] != 0; i++) {
		if (i == sizeof narrow - 1 || name[i] > 0x7e) {
			narrow[0] = 0; // the name of no module
			break;
		}
		narrow[i] = (char)name[i];
	}
	return sn_LoadLibraryA(narrow);
}

FARPROC sn_GetProcAddress(HMODULE module, LPCSTR name)
{
	for (size_t i = 0; module != NULL && i < sizeof functions / sizeof functions[0]; i++)
		if ((uintptr_t)name > 0xffff && strcmp(functions[i].name, name) == 0)
			return functions[i].function;
	sn_fail(ERROR_PROC_NOT_FOUND);
	return NULL;
}
