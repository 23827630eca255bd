// Which memory is below 4 GiB, for a program that keeps pointers in 32 bits.
#include <winsock2.h>

static void *volatile kept;

static int low(size_t size)
{
	kept = malloc(size);
	return (uintptr_t)kept < (uintptr_t)1 << 32;
}

static DWORD WINAPI thread(LPVOID name)
{
	int small = low(100), large = low(1 << 20);
	printf("%s: small %d, large %d\n", (const char *)name, small, large);
	return 0;
}

int main(void)
{
	thread((LPVOID)"main");
	HANDLE h = CreateThread(NULL, 0, thread, (LPVOID)"thread", 0, NULL);
	WaitForSingleObject(h, INFINITE);
	CloseHandle(h);
	return 0;
}
