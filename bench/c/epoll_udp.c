// UDP echo on epoll, level-triggered: epoll_udp single|batch
// For each event up to 64 datagrams are handled, one or all in a system call.
#define _GNU_SOURCE
#include "common.h"
#include <sys/epoll.h>

enum { MANY = 64, SIZE = 2048 };
static char bufs[MANY][SIZE];
static struct sockaddr_in from[MANY];
static struct mmsghdr msgs[MANY];
static struct iovec iov[MANY];

static void single(int fd) {
	for (int i = 0; i < MANY; i++) {
		socklen_t len = sizeof from[0];
		ssize_t n = recvfrom(fd, bufs[0], SIZE, 0, (struct sockaddr *)from, &len);
		if (n < 0) return;
		sendto(fd, bufs[0], n, 0, (struct sockaddr *)from, len);
	}
}

static void batch(int fd) {
	for (int i = 0; i < MANY; i++) {
		iov[i] = (struct iovec){bufs[i], SIZE};
		msgs[i].msg_hdr = (struct msghdr){
			.msg_name = &from[i], .msg_namelen = sizeof from[i], .msg_iov = &iov[i], .msg_iovlen = 1};
	}
	int n = recvmmsg(fd, msgs, MANY, 0, NULL);
	for (int i = 0; i < n; i++) iov[i].iov_len = msgs[i].msg_len;
	if (n > 0) sendmmsg(fd, msgs, n, 0);
}

int main(int argc, char **argv) {
	if (argc != 2) return 2;
	int many = !strcmp(argv[1], "batch"), fd = bound(SOCK_DGRAM, 0, 0), ep = epoll_create1(0), room = 4 << 20;
	struct epoll_event e = {.events = EPOLLIN};
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e)) fail("epoll_ctl");
	say_ready(port_of(fd));
	for (;;)
		if (epoll_wait(ep, &e, 1, -1) == 1) many ? batch(fd) : single(fd);
}
