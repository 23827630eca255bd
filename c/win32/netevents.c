#define _GNU_SOURCE
#include "../layer.h"
#include "../include/win32.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

// WSAEventSelect. A network event is recorded once, and sets the program's event; the call that reenables it has it
// recorded again if its condition holds. So the epoll descriptor is asked for the events that are not recorded, once, and a
// thread waits for it.

// What a socket is, which says what conditions of poll stand for.
enum kind { DATAGRAMS, LISTENER, UNCONNECTED, CONNECTING, CONNECTED };

struct selection {
	SOCKET s;
	enum kind kind;
	uint32_t number; // of the selection, as descriptors are used again
	HANDLE event;
	long asked;    // the network events that the program has asked for
	long enabled;  // those of them that will be recorded
	long recorded; // those that were recorded, and not enumerated
	int errors[FD_MAX_EVENTS];
	struct selection *next;
};

#define BUCKETS 4096
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct selection *selections[BUCKETS]; // guarded by lock
static uint32_t numbers;                      // guarded by lock
static int epoll = -1;                        // guarded by lock until there is a selection

static struct selection **find(SOCKET s)
{
	struct selection **at = &selections[s % BUCKETS];
	while (*at != NULL && (*at)->s != s)
		at = &(*at)->next;
	return at;
}

static bool option(SOCKET s, int name)
{
	int value = 0;
	socklen_t size = sizeof value;
	return getsockopt((int)s, SOL_SOCKET, name, &value, &size) == 0 && value != 0;
}

static enum kind kind_of(SOCKET s)
{
	int type = 0;
	socklen_t size = sizeof type;
	struct sockaddr_storage peer;
	if (getsockopt((int)s, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type != SOCK_STREAM)
		return DATAGRAMS;
	if (option(s, SO_ACCEPTCONN))
		return LISTENER;
	size = sizeof peer;
	if (getpeername((int)s, (struct sockaddr *)&peer, &size) == 0)
		return CONNECTED;
	return sn_connecting(s) ? CONNECTING : UNCONNECTED;
}

// conditions returns what to poll for.
static short conditions(const struct selection *e)
{
	short in = e->enabled & FD_READ ? POLLIN : 0, out = e->enabled & FD_WRITE ? POLLOUT : 0;
	short urgent = e->enabled & FD_OOB ? POLLPRI : 0;
	switch (e->kind) {
	case DATAGRAMS:
		return in | out;
	case LISTENER:
		return e->enabled & FD_ACCEPT ? POLLIN : 0;
	case UNCONNECTED:
		return 0;
	case CONNECTING:
		return e->enabled & (FD_CONNECT | FD_WRITE) ? POLLOUT : 0;
	case CONNECTED:
		return in | out | urgent | (e->enabled & FD_CLOSE ? POLLRDHUP : 0);
	}
	return 0;
}

static void record(struct selection *e, long which, int bit, DWORD error)
{
	if (!(e->enabled & which))
		return;
	e->enabled &= ~which;
	e->recorded |= which;
	e->errors[bit] = (int)error;
	sn_SetEvent(e->event);
}

static DWORD error_of(SOCKET s)
{
	int error = 0;
	socklen_t size = sizeof error;
	getsockopt((int)s, SOL_SOCKET, SO_ERROR, &error, &size);
	return error != 0 ? sn_of_errno(error) : 0;
}

static void connected(struct selection *e, short found)
{
	if (!(found & (POLLOUT | POLLERR | POLLHUP)))
		return;
	DWORD error = error_of(e->s);
	bool begun = error != 0 || !(found & POLLHUP);
	e->kind = begun && error == 0 ? CONNECTED : UNCONNECTED;
	if (begun)
		record(e, FD_CONNECT, FD_CONNECT_BIT, error);
}

// ended records the end of a connection, which is the last event of its receives. Data that the program can receive comes
// first.
static void ended(struct selection *e, short found)
{
	int left = 0;
	if (!(found & POLLERR) && (e->asked & FD_READ) && ioctl((int)e->s, FIONREAD, &left) == 0 && left > 0) {
		record(e, FD_READ, FD_READ_BIT, 0);
		return;
	}
	record(e, FD_CLOSE, FD_CLOSE_BIT, found & POLLERR ? WSAECONNRESET : 0);
	e->asked &= ~(FD_READ | FD_OOB | FD_CLOSE);
	e->enabled &= e->asked;
	if (found & POLLERR)
		e->kind = UNCONNECTED;
}

// look records what holds now.
static void look(struct selection *e)
{
	struct pollfd p = {(int)e->s, conditions(e), 0};
	if (p.events != 0 && e->kind == CONNECTING && poll(&p, 1, 0) > 0) {
		connected(e, p.revents);
		p.events = conditions(e);
	}
	if (p.events == 0 || poll(&p, 1, 0) <= 0 || (p.revents & POLLNVAL))
		return;
	if (e->kind == LISTENER) {
		if (p.revents & POLLIN)
			record(e, FD_ACCEPT, FD_ACCEPT_BIT, 0);
		return;
	}
	if (e->kind == CONNECTED && (p.revents & (POLLRDHUP | POLLERR | POLLHUP)))
		ended(e, p.revents);
	else if (p.revents & (POLLIN | POLLERR)) // an error of a datagram is received
		record(e, FD_READ, FD_READ_BIT, 0);
	if (p.revents & POLLPRI)
		record(e, FD_OOB, FD_OOB_BIT, 0);
	if ((p.revents & POLLOUT) && !(p.revents & POLLERR))
		record(e, FD_WRITE, FD_WRITE_BIT, 0);
}

// Whether it waits or not, epoll reports errors and ends. So a socket for which nothing is asked is taken out.
static void ask(struct selection *e)
{
	look(e);
	short what = conditions(e);
	// While data waits, the end of the stream would be reported at once. The receive that takes the data asks again.
	if (!(e->enabled & FD_READ) && (e->asked & FD_READ))
		what &= (short)~(POLLRDHUP | POLLPRI);
	struct epoll_event ev = {.events = (uint32_t)what | EPOLLONESHOT, .data.u64 = (uint64_t)e->number << 32 | (uint32_t)e->s};
	if (what == 0)
		epoll_ctl(epoll, EPOLL_CTL_DEL, (int)e->s, NULL);
	else if (epoll_ctl(epoll, EPOLL_CTL_MOD, (int)e->s, &ev) != 0)
		epoll_ctl(epoll, EPOLL_CTL_ADD, (int)e->s, &ev);
}

static void *attend(void *unused)
{
	(void)unused;
	for (;;) {
		struct epoll_event ev;
		if (epoll_wait(epoll, &ev, 1, -1) <= 0)
			continue;
		pthread_mutex_lock(&lock);
		struct selection *e = *find((SOCKET)(uint32_t)ev.data.u64);
		if (e != NULL && e->number == (uint32_t)(ev.data.u64 >> 32))
			ask(e);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

// attends begins the thread. It returns false if there can be none.
static bool attends(void)
{
	if (epoll >= 0)
		return true;
	if ((epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
		return false;
	sigset_t all, before;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool made = pthread_create(&thread, NULL, attend, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (made) {
		pthread_detach(thread);
	} else {
		close(epoll);
		epoll = -1;
	}
	return made;
}

static void drop(SOCKET s)
{
	struct selection **at = find(s), *e = *at;
	if (e == NULL)
		return;
	epoll_ctl(epoll, EPOLL_CTL_DEL, (int)s, NULL);
	*at = e->next;
	free(e);
}

// add selects network events for a socket. The lock is held.
static DWORD add(SOCKET s, HANDLE event, long asked)
{
	struct selection *e = calloc(1, sizeof *e), **at;
	if (e == NULL || !attends() || !sn_watch(s, true)) {
		free(e);
		return WSAENOBUFS;
	}
	*e = (struct selection){.s = s, .kind = kind_of(s), .number = ++numbers, .event = event, .asked = asked, .enabled = asked};
	for (at = find(s); *at != NULL; at = &(*at)->next) {
	}
	*at = e;
	ask(e);
	return 0;
}

static void called(SOCKET s, enum sn_call call, SOCKET accepted)
{
	pthread_mutex_lock(&lock);
	struct selection *e = *find(s);
	if (e == NULL)
		goto none;
	long enables = 0;
	switch (call) {
	case SN_RECEIVED:
		enables = FD_READ | FD_OOB;
		break;
	case SN_WOULD_SEND:
		enables = FD_WRITE;
		break;
	case SN_ACCEPTED:
		enables = FD_ACCEPT;
		break;
	case SN_CONNECTED_LATER:
		enables = e->asked;
		e->kind = CONNECTING;
		break;
	}
	e->enabled |= enables & e->asked & ~e->recorded;
	ask(e);
	if (call == SN_ACCEPTED && accepted != INVALID_SOCKET) {
		DWORD on = 1;
		sn_ioctlsocket(accepted, FIONBIO, &on);
		add(accepted, e->event, e->asked);
	}
none:
	pthread_mutex_unlock(&lock);
}

static void closing(SOCKET s)
{
	pthread_mutex_lock(&lock);
	drop(s);
	pthread_mutex_unlock(&lock);
}

// A child after fork has not the thread, and its events are its own.
static void child(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(selections, 0, sizeof selections);
	epoll = -1;
}

__attribute__((constructor)) static void begin(void)
{
	static const struct sn_watcher functions = {called, closing};
	sn_use_watcher(&functions);
	pthread_atfork(NULL, NULL, child);
}

int sn_WSAEventSelect(SOCKET s, HANDLE event, long asked)
{
	DWORD on = 1;
	int type = 0;
	socklen_t size = sizeof type;
	if (getsockopt(sn_descriptor(s), SOL_SOCKET, SO_TYPE, &type, &size) != 0)
		return SOCKET_ERROR;
	if (asked != 0 && event == NULL)
		return sn_fail_socket(WSAEINVAL);
	if (sn_ioctlsocket(s, FIONBIO, &on) != 0)
		return SOCKET_ERROR;
	pthread_mutex_lock(&lock);
	drop(s);
	DWORD error = 0;
	if (asked != 0)
		error = add(s, event, asked);
	else
		sn_watch(s, false);
	pthread_mutex_unlock(&lock);
	return error != 0 ? sn_fail_socket(error) : 0;
}

int sn_WSAEnumNetworkEvents(SOCKET s, HANDLE event, sn_WSANETWORKEVENTS *events)
{
	int type = 0;
	socklen_t size = sizeof type;
	if (events == NULL)
		return sn_fail_socket(WSAEFAULT);
	if (getsockopt(sn_descriptor(s), SOL_SOCKET, SO_TYPE, &type, &size) != 0)
		return SOCKET_ERROR;
	memset(events, 0, sizeof *events);
	pthread_mutex_lock(&lock);
	struct selection *e = *find(s);
	if (e != NULL) {
		events->lNetworkEvents = (LONG)e->recorded;
		for (int i = 0; i < FD_MAX_EVENTS; i++)
			if (e->recorded & 1l << i)
				events->iErrorCode[i] = e->errors[i];
		e->recorded = 0;
	}
	if (event != NULL)
		sn_ResetEvent(event);
	pthread_mutex_unlock(&lock);
	return 0;
}
