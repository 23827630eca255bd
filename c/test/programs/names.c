// What small servers use besides the port, under Windows' names. The program has functions with
// names of unistd.h, and members with names of sockets' calls. It compiles as C and as C++.
#define FD_SETSIZE 3
#include <winsock2.h>
#include <ws2tcpip.h>
#include <mswsock.h>
#include <windows.h>
#include <io.h>
#include <process.h>
#include <strsafe.h>
#include <tchar.h>
#include <stdio.h>

#define SAYS(text, format, ...) \
	do { \
		char said[256]; \
		sprintf_s(said, sizeof said, format, __VA_ARGS__); \
		if (strcmp(said, text) != 0) { \
			printf("%s, not %s\n", said, text); \
			return 1; \
		} \
	} while (0)

typedef int socklen_t; // for systems without it, as programs have it

static int read(int a) { return a + 1; }
static int write(int a) { return a + 2; }
static int close(int a) { return a + 3; }
static int sleep(int a) { return a + 4; }
static int pipe(int a) { return a + 5; }

#ifdef __cplusplus
struct connection {
	int send(const char *) { return 1; }
	int recv() { return 2; }
	int connect(int) { return 3; }
	int bind(const char *, int) { return 4; }
};
#endif

struct members {
	int (*send)(int), (*recv)(int), (*accept)(int), (*bind)(int);
};

static void thread(void *argument) { SetEvent((HANDLE)argument); }

typedef BOOL(WINAPI *post)(HANDLE, DWORD, ULONG_PTR, LPOVERLAPPED);

static int memory(void)
{
	char *zero = (char *)HeapAlloc(GetProcessHeap(), HEAP_ZERO_MEMORY, 16);
	char *fixed = (char *)GlobalAlloc(GPTR, 16);
	if (zero == NULL || fixed == NULL || zero[15] != 0 || fixed[15] != 0)
		return 1;
	return !HeapFree(GetProcessHeap(), 0, zero) || GlobalFree(fixed) != NULL;
}

static int texts(void)
{
	char small[4] = "";
	size_t length = 0;
	if (sprintf_s(small, sizeof small, "%d", 123) != 3 ||
		sprintf_s(small, sizeof small, "%d", 1234) != -1 || small[0] != 0)
		return 1;
	if (strcpy_s(small, sizeof small, "abc") != 0 ||
		strcpy_s(small, sizeof small, "abcd") == 0 || small[0] != 0)
		return 2;
	if (strncpy_s(small, sizeof small, "abcd", _TRUNCATE) != 0 || strcmp(small, "abc") != 0)
		return 3;
	if (StringCchPrintfA(small, sizeof small, "%s", "abcdef") != STRSAFE_E_INSUFFICIENT_BUFFER ||
		strcmp(small, "abc") != 0)
		return 4;
	if (FAILED(StringCchLengthA(small, sizeof small, &length)) || length != 3)
		return 5;
	if (StringCbCopyNA(small, sizeof small, "xyz", 2) != S_OK || strcmp(small, "xy") != 0)
		return 6;
	return strcmp(_T("t"), "t");
}

static int modules(void)
{
	HANDLE port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
	HMODULE kernel = LoadLibrary(TEXT("Kernel32.dll"));
	post function = (post)(void (*)(void))GetProcAddress(kernel, "PostQueuedCompletionStatus");
	DWORD bytes = 0;
	ULONG_PTR key = 0;
	LPOVERLAPPED o;
	if (function == NULL || !function(port, 3, 4, NULL) ||
		!GetQueuedCompletionStatus(port, &bytes, &key, &o, 0) || bytes != 3 || key != 4)
		return 1;
	if (GetProcAddress(kernel, "NtNothing") != NULL || GetLastError() != ERROR_PROC_NOT_FOUND)
		return 2;
	if (LoadLibraryW(L"user32.dll") != NULL || GetLastError() != ERROR_MOD_NOT_FOUND)
		return 3;
	CloseHandle(port);
	return !FreeLibrary(kernel);
}

static int sockets(void)
{
	SOCKADDR_IN at;
	int length = sizeof at, yes = 1;
	DWORD ms = 50;
	BOOLEAN no_delay = TRUE;
	LINGER linger = {1, 0};
	memset(&at, 0, sizeof at);
	at.sin_family = AF_INET;
	at.sin_addr.S_un.S_addr = inet_addr("127.0.0.1");
	if (at.sin_addr.s_addr != htonl(INADDR_LOOPBACK) || at.sin_addr.S_un.S_un_b.s_b1 != 127)
		return 1;
	SOCKET l = WSASocket(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, 0, WSA_FLAG_OVERLAPPED);
	if (setsockopt(l, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, (char *)&yes, sizeof yes) != 0 ||
		bind(l, (SOCKADDR *)&at, sizeof at) != 0 || listen(l, SOMAXCONN) != 0 ||
		getsockname(l, (SOCKADDR *)&at, &length) != 0)
		return 2;
	SOCKET c = socket(AF_INET, SOCK_STREAM, 0);
	if (WSAConnect(c, (SOCKADDR *)&at, sizeof at, NULL, NULL, NULL, NULL) != 0)
		return 3;
	SOCKET s = WSAAccept(l, NULL, NULL, NULL, 0);
	char b;
	if (s == INVALID_SOCKET ||
		!SetFileCompletionNotificationModes((HANDLE)s, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS))
		return 4;
	if (setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, (const char *)&ms, sizeof ms) != 0 ||
		recv(s, &b, 1, 0) != SOCKET_ERROR || WSAGetLastError() != WSAETIMEDOUT)
		return 5;
	if (setsockopt(s, IPPROTO_TCP, TCP_NODELAY, (const char *)&no_delay, sizeof no_delay) != 0 ||
		setsockopt(s, SOL_SOCKET, SO_LINGER, (const char *)&linger, sizeof linger) != 0)
		return 6;
	closesocket(s);
	closesocket(c);
	closesocket(l);
	return 0;
}

__declspec(align(16)) static char aligned_text[4] = "abc";

static __forceinline __int64 add(__int64 a, __int64 b) { return a + b; }

// words uses what Microsoft's compiler knows without a header.
static int words(void)
{
	LONG n = 1;
	if (add(1, 2) != 3 || ((ULONG_PTR)aligned_text & 15) != 0 || _InterlockedIncrement(&n) != 2 ||
		max(n, 7) != 7 || min(n, 7) != 2)
		return 1;
#ifdef __cplusplus
	int order = 0;
	__try {
		order = 1;
		if (n == 2)
			__leave;
		order = 2;
	} __finally {
		order += 10;
	}
	__try {
		throw 1;
	} __except (EXCEPTION_EXECUTE_HANDLER) {
		order += 100;
	}
	if (order != 111)
		return 2;
#endif
	return 0;
}

static int sets(void)
{
	struct fd_set set;
	FD_SET *list = &set;
	FD_ZERO(list);
	for (SOCKET s = 5; s < 9; s++) // the fourth has no room
		FD_SET(s, list);
	FD_CLR(5, list);
	return set.fd_count != 2 || set.fd_array[0] != 6 || FD_ISSET(8, list) || !FD_ISSET(7, list) ||
		sizeof set != 8 + 3 * sizeof(SOCKET);
}

static int messages(void)
{
	if (MessageBoxA(NULL, "question", "names", MB_ICONQUESTION | 4) != 0)
		return 1;
	return MessageBox(NULL, "text", NULL, MB_ICONERROR) != IDOK;
}

static int addresses(void)
{
	IN_ADDR a;
	WCHAR text[32];
	if (InetPtonW(AF_INET, L"127.0.0.1", &a) != 1 || a.s_addr != htonl(INADDR_LOOPBACK))
		return 1;
	if (InetPtonW(AF_INET, L"not an address of the internet, and long, too", &a) != 0)
		return 2;
	return InetNtopW(AF_INET, &a, text, 32) == NULL || wcscmp(text, L"127.0.0.1") != 0;
}

static int clocks(void)
{
	LARGE_INTEGER frequency, first, second;
	if (!QueryPerformanceFrequency(&frequency) || !QueryPerformanceCounter(&first))
		return 1;
	Sleep(2);
	QueryPerformanceCounter(&second);
	return (second.QuadPart - first.QuadPart) * 1000 / frequency.QuadPart < 2;
}

int main(void)
{
	struct members m = {read, write, close, sleep};
	HANDLE ended = CreateEvent(NULL, TRUE, FALSE, NULL);
	if (_beginthread(thread, 0, ended) == (uintptr_t)-1 ||
		WaitForSingleObject(ended, INFINITE) != WAIT_OBJECT_0)
		return 1;
	SAYS("2 3 4 5 6", "%d %d %d %d %d", m.send(1), m.recv(1), m.accept(1), m.bind(1), pipe(1));
#ifdef __cplusplus
	struct connection c;
	SAYS("1 2 3 4", "%d %d %d %d", c.send("a"), c.recv(), c.connect(1), c.bind("a", 1));
#endif
	SAYS("0 0 0 0 0", "%d %d %d %d %d", memory(), texts(), modules(), sockets(), clocks());
	SAYS("0 0 0 0", "%d %d %d %d", words(), addresses(), sets(), messages());
	SAYS("1024", "%d", MAKELANGID(LANG_NEUTRAL, SUBLANG_DEFAULT));
	SAYS("4 8 8", "%d %d %d", (int)sizeof(HRESULT), (int)sizeof(LARGE_INTEGER),
		(int)sizeof(PDWORD_PTR));
	puts("names: all as expected");
	return 0;
}
