// What the C contenders share: sockets, clocks and the output of results.
#ifndef COMMON_H
#define COMMON_H
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline void fail(const char *what) {
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static inline uint64_t clock_ns(clockid_t id) {
	struct timespec t;
	clock_gettime(id, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

// Scheduler run time of all threads of the process.
static inline uint64_t cpu_ns(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

static inline void no_delay(int fd) {
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// A non-blocking socket on a loopback port; 0 is any port. Sockets that share the port share its load.
static inline int bound(int type, int port, int share) {
	int fd = socket(AF_INET, type | SOCK_NONBLOCK, 0), one = 1;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0) fail("socket");
	if (share) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
	if (bind(fd, (struct sockaddr *)&a, sizeof a)) fail("bind");
	if (type == SOCK_STREAM && listen(fd, 4096)) fail("listen");
	return fd;
}

static inline int port_of(int fd) {
	struct sockaddr_in a;
	socklen_t n = sizeof a;
	if (getsockname(fd, (struct sockaddr *)&a, &n)) fail("getsockname");
	return ntohs(a.sin_port);
}

static inline void say_ready(int port) {
	printf("ready 127.0.0.1:%d\n", port);
	fflush(stdout);
}

struct outcome {
	uint64_t ops, cpu, elapsed;
	double base, base_after; // base_after is 0 if it was not measured
	long switches;
};

static inline long switches(void) {
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	return r.ru_nvcsw + r.ru_nivcsw;
}

static inline void start(struct outcome *o) {
	o->switches = switches();
	o->elapsed = now_ns();
	o->cpu = cpu_ns();
}

static inline void stop(struct outcome *o) {
	o->cpu = cpu_ns() - o->cpu;
	o->elapsed = now_ns() - o->elapsed;
	o->switches = switches() - o->switches;
}

static inline void tell(struct outcome *o) {
	printf("{\"ops\":%llu,\"cpu_ns\":%llu,\"elapsed_ns\":%llu,\"base_ns\":%.1f,\"base_after_ns\":%.1f,\"switches\":%ld}\n",
		(unsigned long long)o->ops, (unsigned long long)o->cpu, (unsigned long long)o->elapsed,
		o->base, o->base_after, o->switches);
}
#endif
