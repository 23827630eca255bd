#define _GNU_SOURCE
#include "sn.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "_cgo_export.h"

// The library stands between the system and each signal handler of the process, Go's included:
// sigaction and signal replace the C library's, and handlers that were there first are installed
// again. For two reasons. A thread that is inside Go has a stack that is too small for a handler,
// but for each thread that enters it Go has a signal stack: handlers get SA_ONSTACK. And a thread
// has to know that it runs a handler, when it posts.

int __sigaction(int number, const struct sigaction *action, struct sigaction *old); // glibc's

// ThreadSanitizer calls these functions before it is ready.
#define PLAIN __attribute__((no_sanitize_thread))

typedef void handler(int number, siginfo_t *info, void *context);

// What the program has installed, for signals whose handler is run.
static struct {
	_Atomic(handler *) handler;
	atomic_int flags;
} installed[NSIG];

// depth is the number of handlers that the thread runs. One that was left by longjmp counts on,
// which costs the posts of the thread some time. The model is one for which a handler needs no
// memory.
static _Thread_local __attribute__((tls_model("initial-exec"))) volatile int depth;

PLAIN static void run(int number, siginfo_t *info, void *context)
{
	depth++;
	atomic_load(&installed[number].handler)(number, info, context);
	depth--;
}

// set is sigaction. What it takes and returns are handlers of the program.
PLAIN static int set(int number, const struct sigaction *action, struct sigaction *old)
{
	struct sigaction a, was;
	if (number < 1 || number >= NSIG)
		return __sigaction(number, action, old); // which fails
	handler *was_handler = atomic_load(&installed[number].handler);
	int was_flags = atomic_load(&installed[number].flags);
	if (action != NULL && action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN) {
		a = *action;
		atomic_store(&installed[number].handler, a.sa_sigaction);
		atomic_store(&installed[number].flags, a.sa_flags);
		a.sa_sigaction = run;
		a.sa_flags |= SA_ONSTACK | SA_SIGINFO;
		action = &a;
	}
	if (__sigaction(number, action, &was) != 0)
		return -1;
	if (was.sa_sigaction == run) {
		was.sa_sigaction = was_handler;
		was.sa_flags = was_flags;
	}
	if (old != NULL)
		*old = was;
	return 0;
}

// Before Go's constructor, which installs handlers from another thread.
PLAIN __attribute__((constructor(101))) static void begin(void)
{
	for (int number = 1; number < NSIG; number++) {
		struct sigaction a;
		if (__sigaction(number, NULL, &a) == 0 && a.sa_sigaction != run)
			set(number, &a, NULL);
	}
}

PLAIN int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
	return set(number, action, old);
}

PLAIN static sighandler_t install(int number, sighandler_t handler, int flags)
{
	struct sigaction a = {.sa_handler = handler, .sa_flags = flags}, old;
	sigemptyset(&a.sa_mask);
	return set(number, &a, &old) == 0 ? old.sa_handler : SIG_ERR;
}

PLAIN sighandler_t signal(int number, sighandler_t handler)
{
	return install(number, handler, SA_RESTART);
}

// signal has this name in programs that ask for strict C.
PLAIN sighandler_t __sysv_signal(int number, sighandler_t handler)
{
	return install(number, handler, SA_RESETHAND | SA_NODEFER);
}

// Posts of signal handlers. They must not enter Go, where the thread may be already, and take no
// lock. So a handler puts its post into a ring and wakes the threads that wait; the next thread
// that dequeues passes it on.
#define POSTS 4096
static struct {
	// The number of the post that may be put here, and one more when it was.
	_Atomic uint64_t turn;
	DWORD bytes;
	HANDLE port;
	ULONG_PTR key;
	uintptr_t overlapped;
} posts[POSTS];

static _Atomic uint64_t put, taken;
static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;

// push puts a post into the ring. turn is counted from 0 for each element: twice the round, and one
// more while it holds a post.
static bool push(HANDLE port, DWORD bytes, ULONG_PTR key, uintptr_t overlapped)
{
	uint64_t n = atomic_load(&put);
	do
		if (atomic_load(&posts[n % POSTS].turn) != n / POSTS * 2)
			return false; // full
	while (!atomic_compare_exchange_weak(&put, &n, n + 1));
	uint64_t at = n % POSTS;
	posts[at].port = port;
	posts[at].bytes = bytes;
	posts[at].key = key;
	posts[at].overlapped = overlapped;
	atomic_store(&posts[at].turn, n / POSTS * 2 + 1);
	return true;
}

static void take(void)
{
	pthread_mutex_lock(&taking);
	for (uint64_t n = atomic_load(&taken);; atomic_store(&taken, ++n)) {
		uint64_t at = n % POSTS;
		if (atomic_load(&posts[at].turn) != n / POSTS * 2 + 1)
			break; // none, or a handler is about to put it
		uintptr_t port = (uintptr_t)posts[at].port, overlapped = posts[at].overlapped;
		DWORD bytes = posts[at].bytes;
		ULONG_PTR key = posts[at].key;
		atomic_store(&posts[at].turn, n / POSTS * 2 + 2);
		snGoPost(port, bytes, key, overlapped); // a port that was closed has none
	}
	pthread_mutex_unlock(&taking);
}

void sn_take_posts(void)
{
	if (atomic_load(&put) != atomic_load_explicit(&taken, memory_order_relaxed))
		take();
}

DWORD sn_post(HANDLE port, DWORD bytes, ULONG_PTR key, uintptr_t overlapped)
{
	if (depth == 0)
		return snGoPost((uintptr_t)port, bytes, key, overlapped);
	if (sn_kind(port) != SN_KIND_PORT)
		return ERROR_INVALID_HANDLE;
	if (!push(port, bytes, key, overlapped))
		return ERROR_NO_SYSTEM_RESOURCES;
	sn_wake_all();
	return ERROR_SUCCESS;
}
