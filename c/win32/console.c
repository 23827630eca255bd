#define _GNU_SOURCE
#include "../layer.h"
#include "../include/win32.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

// Console handlers. A signal handler only writes to an eventfd. A thread of the library's own reads
// it and calls the program's handlers, the latest first, as Windows does.

#define MAX_HANDLERS 64
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static PHANDLER_ROUTINE handlers[MAX_HANDLERS]; // guarded by lock
static unsigned count;                          // guarded by lock
static bool ignores;                            // guarded by lock: Ctrl-C is ignored
static int events = -1;                         // written once, before there is a handler

// A thread's counts of interrupts are in the lower half of the eventfd, and those of terminations
// in the upper one.
#define TERMINATION ((uint64_t)1 << 32)

static void arrived(int number)
{
	int error = errno;
	uint64_t n = number == SIGINT ? 1 : TERMINATION;
	(void)!write(events, &n, sizeof n);
	errno = error;
}

// handle calls the handlers until one returns TRUE. Without one the signal does what it does by
// default.
static void handle(DWORD event, int number)
{
	PHANDLER_ROUTINE list[MAX_HANDLERS];
	pthread_mutex_lock(&lock);
	unsigned n = count;
	bool ignored = ignores && event == CTRL_C_EVENT;
	memcpy(list, handlers, sizeof list);
	pthread_mutex_unlock(&lock);
	if (ignored)
		return;
	while (n > 0)
		if (list[--n](event))
			return;
	signal(number, SIG_DFL);
	kill(getpid(), number);
}

static void *attend(void *unused)
{
	(void)unused;
	for (;;) {
		uint64_t n = 0;
		if (read(events, &n, sizeof n) < 0 && errno != EINTR)
			return NULL;
		if ((uint32_t)n != 0)
			handle(CTRL_C_EVENT, SIGINT);
		if (n >= TERMINATION)
			handle(CTRL_CLOSE_EVENT, SIGTERM);
	}
}

// attends begins the thread, and installs the signal handlers. It returns false if there can be no
// thread. The lock is held.
static bool attends(void)
{
	if (events >= 0)
		return true;
	int fd = eventfd(0, EFD_CLOEXEC);
	if (fd < 0)
		return false;
	sigset_t all, before;
	pthread_t thread;
	pthread_attr_t attr;
	events = fd;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	bool made = pthread_create(&thread, &attr, attend, NULL) == 0;
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!made) {
		events = -1;
		close(fd);
		return false;
	}
	struct sigaction a = {.sa_handler = arrived, .sa_flags = SA_RESTART};
	sigemptyset(&a.sa_mask);
	sigaction(SIGINT, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
	return true;
}

static bool add(PHANDLER_ROUTINE handler)
{
	if (count == MAX_HANDLERS)
		return false;
	handlers[count++] = handler;
	return true;
}

static bool drop(PHANDLER_ROUTINE handler)
{
	for (unsigned i = count; i-- > 0;)
		if (handlers[i] == handler) {
			memmove(&handlers[i], &handlers[i + 1], (--count - i) * sizeof handlers[0]);
			return true;
		}
	return false;
}

BOOL sn_SetConsoleCtrlHandler(PHANDLER_ROUTINE handler, BOOL adds)
{
	pthread_mutex_lock(&lock);
	DWORD error = ERROR_SUCCESS;
	if (!attends())
		error = ERROR_NOT_ENOUGH_MEMORY;
	else if (handler == NULL)
		ignores = adds;
	else if (adds ? !add(handler) : !drop(handler))
		error = adds ? ERROR_NOT_ENOUGH_MEMORY : ERROR_INVALID_PARAMETER;
	pthread_mutex_unlock(&lock);
	return error == ERROR_SUCCESS || sn_fail(error);
}
