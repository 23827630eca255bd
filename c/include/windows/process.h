/* Windows' process.h: threads of the C library. */
#ifndef SN_PROCESS_H
#define SN_PROCESS_H

#include "windows.h"

typedef unsigned (*_beginthreadex_proc_type)(void *);
typedef void (*_beginthread_proc_type)(void *);

static inline uintptr_t sn_beginthreadex(void *security, unsigned stackSize,
	_beginthreadex_proc_type start, void *argument, unsigned flags, unsigned *id)
{
	return (uintptr_t)sn_CreateThread(security, stackSize, start, argument, flags, id);
}
#define _beginthreadex sn_beginthreadex
#define _endthreadex(code) sn_ExitThread(code)

struct sn_thread {
	_beginthread_proc_type start;
	void *argument;
};

static inline DWORD sn_run_thread(void *of)
{
	struct sn_thread t = *(struct sn_thread *)of;
	free(of);
	t.start(t.argument);
	return 0;
}

/* The handle of _beginthread is closed when the thread ends on Windows, and at once here. */
static inline uintptr_t sn_beginthread(_beginthread_proc_type start, unsigned stackSize,
	void *argument)
{
	struct sn_thread *t = (struct sn_thread *)malloc(sizeof *t);
	if (t == NULL)
		return (uintptr_t)-1;
	t->start = start;
	t->argument = argument;
	HANDLE h = sn_CreateThread(NULL, stackSize, sn_run_thread, t, 0, NULL);
	if (h == NULL) {
		free(t);
		return (uintptr_t)-1;
	}
	sn_CloseHandle(h);
	return (uintptr_t)h;
}
#define _beginthread sn_beginthread
#define _endthread() sn_ExitThread(0)

#endif
