// An echo server for 64-byte requests of 100 connections, with the load in a process of its own:
//
//	echo epoll|level|oneshot [THREADS [SECONDS]]
//
// epoll is a plain loop on level-triggered epoll, one for each thread, which share the connections. The others use the
// library, with persistent level registrations or one-shot ones. With several threads, level has a port for each, so that no
// two threads are notified of one request. It prints the CPU of the server for each request, and the requests a second.
#define _GNU_SOURCE
#include <winsock2.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONNECTIONS = 100, SIZE = 64, BATCH = 64 };

static int sockets[CONNECTIONS];
static int threads, stopped;
static long requests;
static char mode;
static HANDLE shared;

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		_exit(1);
	}
}

static void echo(int s, long *n)
{
	char b[SIZE];
	ssize_t k = recv(s, b, sizeof b, 0);
	check(k > 0 && send(s, b, (int)k, 0) == k, "echo");
	++*n;
}

static void *by_epoll(void *of)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e[BATCH];
	long n = 0;
	for (int i = (int)(intptr_t)of; i < CONNECTIONS; i += threads) {
		struct epoll_event add = {.events = EPOLLIN, .data.fd = sockets[i]};
		check(epoll_ctl(ep, EPOLL_CTL_ADD, sockets[i], &add) == 0, "epoll_ctl");
	}
	while (!__atomic_load_n(&stopped, __ATOMIC_RELAXED)) {
		int k = epoll_wait(ep, e, BATCH, 100);
		for (int i = 0; i < k; i++)
			echo(e[i].data.fd, &n);
	}
	__atomic_add_fetch(&requests, n, __ATOMIC_SEQ_CST);
	return NULL;
}

static SOCK_NOTIFY_REGISTRATION registration(int s, int trigger)
{
	SOCK_NOTIFY_REGISTRATION r = {(SOCKET)s, (PVOID)(intptr_t)s, SOCK_NOTIFY_EVENT_IN, SOCK_NOTIFY_OP_ENABLE,
		(UINT8)(SOCK_NOTIFY_TRIGGER_LEVEL | trigger), 0};
	return r;
}

static void *by_library(void *of)
{
	HANDLE port = mode == 'o' ? shared : CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
	int trigger = mode == 'o' ? SOCK_NOTIFY_TRIGGER_ONESHOT : SOCK_NOTIFY_TRIGGER_PERSISTENT;
	SOCK_NOTIFY_REGISTRATION regs[BATCH];
	OVERLAPPED_ENTRY e[BATCH];
	UINT32 count = 0, k;
	long n = 0;
	for (int i = (int)(intptr_t)of; i < CONNECTIONS; i += threads) {
		SOCK_NOTIFY_REGISTRATION r = registration(sockets[i], trigger);
		check(ProcessSocketNotifications(port, 1, &r, 0, 0, NULL, NULL) == 0 && r.registrationResult == 0, "register");
	}
	while (!__atomic_load_n(&stopped, __ATOMIC_RELAXED)) {
		DWORD error = ProcessSocketNotifications(port, count, count ? regs : NULL, 100, mode == 'o' ? BATCH / threads : BATCH, e, &k);
		check(error == ERROR_SUCCESS || error == WAIT_TIMEOUT, "ProcessSocketNotifications");
		count = 0;
		for (UINT32 i = 0; i < k; i++) {
			echo((int)e[i].lpCompletionKey, &n);
			if (mode == 'o')
				regs[count++] = registration((int)e[i].lpCompletionKey, trigger);
		}
	}
	__atomic_add_fetch(&requests, n, __ATOMIC_SEQ_CST);
	return NULL;
}

// load keeps one request of each connection under way.
static void load(const struct sockaddr_in *to)
{
	struct pollfd p[CONNECTIONS];
	char b[SIZE] = {0};
	for (int i = 0; i < CONNECTIONS; i++) {
		int yes = 1;
		p[i].fd = (socket)(AF_INET, SOCK_STREAM, 0);
		p[i].events = POLLIN;
		check((connect)(p[i].fd, (const struct sockaddr *)to, sizeof *to) == 0, "connect");
		(setsockopt)(p[i].fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	}
	for (int i = 0; i < CONNECTIONS; i++)
		check((send)(p[i].fd, b, sizeof b, MSG_NOSIGNAL) == SIZE, "send");
	while (poll(p, CONNECTIONS, -1) > 0)
		for (int i = 0; i < CONNECTIONS; i++)
			if (p[i].revents != 0 && ((recv)(p[i].fd, b, sizeof b, MSG_WAITALL) != SIZE || (send)(p[i].fd, b, sizeof b, MSG_NOSIGNAL) != SIZE))
				_exit(0);
}

int main(int argc, char **argv)
{
	mode = argc > 1 ? argv[1][0] : 0;
	threads = argc > 2 ? atoi(argv[2]) : 1;
	double seconds = argc > 3 ? atof(argv[3]) : 3;
	if ((mode != 'e' && mode != 'l' && mode != 'o') || threads < 1 || threads > 16) {
		fprintf(stderr, "usage: echo epoll|level|oneshot [THREADS [SECONDS]]\n");
		return 2;
	}
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int length = sizeof at, l = (socket)(AF_INET, SOCK_STREAM, 0), yes = 1;
	check(bind(l, (struct sockaddr *)&at, sizeof at) == 0 && listen(l, CONNECTIONS) == 0 &&
			getsockname(l, (SOCKADDR *)&at, &length) == 0,
		"listen");
	pid_t client = fork();
	if (client == 0)
		load(&at);
	for (int i = 0; i < CONNECTIONS; i++) {
		sockets[i] = (int)accept(l, NULL, NULL);
		check(sockets[i] >= 0, "accept");
		setsockopt(sockets[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	}
	if (mode == 'o')
		shared = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
	struct rusage before, after;
	getrusage(RUSAGE_SELF, &before);
	pthread_t t[16];
	for (int i = 0; i < threads; i++)
		check(pthread_create(&t[i], NULL, mode == 'e' ? by_epoll : by_library, (void *)(intptr_t)i) == 0, "pthread_create");
	usleep((useconds_t)(seconds * 1e6));
	__atomic_store_n(&stopped, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	getrusage(RUSAGE_SELF, &after);
	kill(client, SIGKILL);
	waitpid(client, NULL, 0);
	double us = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1e6 +
		(double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec);
	printf("%-8s %d threads: %.3f us of CPU a request, %.0f requests a second\n", argv[1], threads, us / (double)requests,
		(double)requests / seconds);
	return requests == 0;
}
