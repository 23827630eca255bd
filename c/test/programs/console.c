// SetConsoleCtrlHandler: the latest handler that returns TRUE has the event, on a thread of the
// library's.
#include "check.h"

#include <signal.h>
#include <sys/wait.h>

static HANDLE happened;
static DWORD main_thread, last_event = 4711, declined;

static BOOL WINAPI handler(DWORD event)
{
	CHECK(GetCurrentThreadId() != main_thread);
	last_event = event;
	SetEvent(happened);
	return TRUE;
}

static BOOL WINAPI declines(DWORD event)
{
	(void)event;
	declined++;
	return FALSE;
}

static void raises(int number, DWORD event)
{
	kill(getpid(), number);
	IS(WaitForSingleObject(happened, PATIENCE), WAIT_OBJECT_0);
	IS(last_event, event);
}

int main(void)
{
	main_thread = GetCurrentThreadId();
	happened = CreateEvent(NULL, FALSE, FALSE, NULL);
	CHECK(SetConsoleCtrlHandler(handler, TRUE));
	raises(SIGINT, CTRL_C_EVENT);
	raises(SIGTERM, CTRL_CLOSE_EVENT);
	CHECK(SetConsoleCtrlHandler(declines, TRUE));
	raises(SIGINT, CTRL_C_EVENT);
	IS(declined, 1);
	CHECK(SetConsoleCtrlHandler(declines, FALSE));
	CHECK(!SetConsoleCtrlHandler(declines, FALSE));
	IS(GetLastError(), ERROR_INVALID_PARAMETER);
	CHECK(SetConsoleCtrlHandler(NULL, TRUE)); // Ctrl-C is ignored
	kill(getpid(), SIGINT);
	raises(SIGTERM, CTRL_CLOSE_EVENT);

	// Without a handler the signal ends the process.
	pid_t child = fork();
	if (child == 0) {
		execl("/proc/self/exe", "console", "child", NULL);
		_exit(1);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status));
	IS(WTERMSIG(status), SIGTERM);
	return 0;
}

__attribute__((constructor)) static void as_child(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "child") != 0)
		return;
	CHECK(SetConsoleCtrlHandler(declines, TRUE));
	kill(getpid(), SIGTERM);
	for (;;)
		Sleep(INFINITE);
}
