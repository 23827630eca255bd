// Registering and removing on epoll: epoll_register REGISTERED MILLISECONDS
// With so many registered, each in turn is removed and registered again. An operation is either.
#include "common.h"
#include <sys/epoll.h>

int main(int argc, char **argv) {
	if (argc != 3) return 2;
	int n = atoi(argv[1]), *fds = calloc(n, sizeof *fds), ep = epoll_create1(0), i = 0;
	struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
	struct outcome o = {0};
	for (i = 0; i < n; i++) {
		fds[i] = bound(SOCK_DGRAM, 0, 0);
		if (epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &e)) fail("epoll_ctl");
	}
	start(&o);
	uint64_t until = now_ns() + atol(argv[2]) * 1000000ull;
	do {
		for (int k = 0; k < 64; k++, i++) {
			e.data.u32 = i %= n;
			if (epoll_ctl(ep, EPOLL_CTL_DEL, fds[i], &e)) fail("EPOLL_CTL_DEL");
			if (epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &e)) fail("EPOLL_CTL_ADD");
		}
		o.ops += 128;
	} while (now_ns() < until);
	stop(&o);
	tell(&o);
}
