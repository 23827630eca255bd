// The library is loaded while the program runs, and unloading it does nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <socknotify.h>

static volatile sig_atomic_t signals;

static void on_signal(int signal) { (void)signal, signals++; }

static void *look(void *library, const char *name)
{
	void *f = dlsym(library, name);
	if (f == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return f;
}

int main(int argc, char **argv)
{
	struct sigaction a = {.sa_handler = on_signal}, is;
	sigaction(SIGPROF, &a, NULL);
	sigaction(SIGPIPE, &a, NULL);
	HANDLE port = NULL;
	for (int round = 0; round < 2; round++) {
		void *library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
		if (library == NULL) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		HANDLE (*create)(HANDLE, HANDLE, ULONG_PTR, DWORD) = look(library, "sn_CreateIoCompletionPort");
		BOOL (*post)(HANDLE, DWORD, ULONG_PTR, LPOVERLAPPED) = look(library, "sn_PostQueuedCompletionStatus");
		BOOL (*get)(HANDLE, LPDWORD, PULONG_PTR, LPOVERLAPPED *, DWORD) = look(library, "sn_GetQueuedCompletionStatus");
		if (dlclose(library) != 0)
			return 1;
		DWORD bytes;
		ULONG_PTR key;
		LPOVERLAPPED o;
		if (port == NULL)
			port = create(INVALID_HANDLE_VALUE, NULL, 0, 0);
		if (port == NULL || !post(port, 1, 2, NULL) || !get(port, &bytes, &key, &o, INFINITE) || bytes != 1 || key != 2)
			return 1;
	}
	if (sigaction(SIGPROF, NULL, &is) != 0 || is.sa_handler != on_signal)
		return 2;
	// Go's runtime has a handler of its own for SIGPIPE, which calls the program's.
	raise(SIGPIPE);
	raise(SIGPROF);
	if (signals != 2)
		return 3;
	return 0;
}
