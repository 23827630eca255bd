// TCP echo on epoll: epoll_echo level|edge|oneshot THREADS
// Level and edge: each thread has an epoll descriptor and a listener of its own on one port.
// One-shot: the threads share one epoll descriptor.
#define _GNU_SOURCE
#include "common.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>

static uint32_t flags;
static int oneshot, threads, shared = -1, port;
static int listeners[64];

static void watch(int ep, int op, int fd, uint32_t events) {
	struct epoll_event e = {.events = events, .data.fd = fd};
	if (epoll_ctl(ep, op, fd, &e)) fail("epoll_ctl");
}

// Sends all, and waits while the peer does not read.
static int echo(int fd, const char *b, ssize_t n) {
	while (n > 0) {
		ssize_t k = send(fd, b, n, MSG_NOSIGNAL);
		if (k >= 0) {
			b += k, n -= k;
		} else if (errno == EAGAIN) {
			struct pollfd p = {.fd = fd, .events = POLLOUT};
			poll(&p, 1, -1);
		} else {
			return -1;
		}
	}
	return 0;
}

static void accept_all(int ep, int l) {
	int c;
	while ((c = accept4(l, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		no_delay(c);
		watch(ep, EPOLL_CTL_ADD, c, EPOLLIN | flags);
	}
	if (oneshot) watch(ep, EPOLL_CTL_MOD, l, EPOLLIN | flags);
}

static void *loop(void *arg) {
	int l = listeners[(long)arg], ep = shared;
	struct epoll_event ev[256];
	enum { SIZE = 65536 };
	char *buf = malloc(SIZE);
	if (ep < 0) {
		ep = epoll_create1(0);
		watch(ep, EPOLL_CTL_ADD, l, EPOLLIN);
	}
	for (;;) {
		int n = epoll_wait(ep, ev, 256, -1);
		for (int i = 0; i < n; i++) {
			int fd = ev[i].data.fd;
			ssize_t k;
			if (fd == l) {
				accept_all(ep, l);
				continue;
			}
			// A receive of fewer bytes than fit has drained the socket.
			do {
				k = recv(fd, buf, SIZE, 0);
				if (k == 0 || (k < 0 && errno != EAGAIN) || (k > 0 && echo(fd, buf, k))) {
					close(fd);
					fd = -1;
				}
			} while (fd >= 0 && flags == EPOLLET && k == SIZE);
			if (oneshot && fd >= 0) watch(ep, EPOLL_CTL_MOD, fd, EPOLLIN | flags);
		}
	}
	return NULL;
}

int main(int argc, char **argv) {
	if (argc != 3) return 2;
	oneshot = !strcmp(argv[1], "oneshot");
	flags = oneshot ? EPOLLONESHOT : !strcmp(argv[1], "edge") ? EPOLLET : 0;
	threads = atoi(argv[2]);
	if (threads > 64) return 2;
	for (int i = 0; i < (oneshot ? 1 : threads); i++) {
		listeners[i] = bound(SOCK_STREAM, port, threads > 1 && !oneshot);
		port = port_of(listeners[0]);
	}
	if (oneshot) {
		shared = epoll_create1(0);
		watch(shared, EPOLL_CTL_ADD, listeners[0], EPOLLIN | flags);
	}
	for (long i = 1; i < threads; i++) {
		pthread_t t;
		if (pthread_create(&t, NULL, loop, (void *)(oneshot ? 0 : i))) fail("pthread_create");
	}
	say_ready(port);
	loop((void *)0);
}
