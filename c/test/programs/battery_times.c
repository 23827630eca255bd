// Times, and headers that have a few names: see battery.h.
#include "battery.h"

#include <direct.h>
#include <mmsystem.h>
#include <time.h>
#include <timeapi.h>
#include <ws2ipdef.h>

// seconds returns the seconds of a day.
static int seconds(const SYSTEMTIME *t) { return t->wHour * 3600 + t->wMinute * 60 + t->wSecond; }

static void check(const char *name, const SYSTEMTIME *t)
{
	printf("%s: %d\n", name, t->wYear > 2000 && t->wMonth >= 1 && t->wMonth <= 12 && t->wDay >= 1 && t->wDay <= 31 &&
		t->wDayOfWeek < 7 && t->wMilliseconds < 1000 && seconds(t) < 24 * 3600);
}

int main(void)
{
	SYSTEMTIME utc, local, later;
	GetSystemTime(&utc);
	GetLocalTime(&local);
	check("GetSystemTime", &utc);
	check("GetLocalTime", &local);
	DWORD from = timeGetTime();
	printf("timeBeginPeriod: %u\n", (unsigned)timeBeginPeriod(1));
	printf("SleepEx: %u\n", (unsigned)SleepEx(1100, TRUE));
	DWORD took = timeGetTime() - from;
	printf("timeEndPeriod: %u\n", (unsigned)timeEndPeriod(1));
	GetSystemTime(&later);
	printf("timeGetTime: %d, GetSystemTime: %d\n", took >= 1090 && took < 60000, (seconds(&later) - seconds(&utc) + 86400) % 86400 >= 1);
	FILETIME since;
	GetSystemTimeAsFileTime(&since);
	unsigned long long now = ((unsigned long long)since.dwHighDateTime << 32 | since.dwLowDateTime) / 10000000 - 11644473600u;
	printf("GetSystemTimeAsFileTime: %d\n", now + 60 > (unsigned long long)time(NULL) && now < (unsigned long long)time(NULL) + 60);
	OutputDebugStringA("a text\n");
	OutputDebugStringW(L"a text\n");
	printf("_mkdir: %d\n", _mkdir("battery_times.d"));
	printf("_rmdir: %d\n", _rmdir("battery_times.d"));
	char path[512];
	printf("_getcwd: %d\n", _getcwd(path, sizeof path) == path);
	return 0;
}
