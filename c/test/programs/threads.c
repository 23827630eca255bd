// Many threads share a port: threads SECONDS. Pairs of sockets play with one ball each, while another thread posts. At most
// one thread has a socket at a time, every byte and every post arrives, and the removal of a socket is its last
// notification.
#include "check.h"

enum { PAIRS = 48, DEQUEUE = 3, POST = 1, PAUSE = 2, QUIT = 3 };

typedef struct {
	SOCKET socket, peer;
	uint64_t *ball; // what the pair has received
	int held, removed;
} end;

static HANDLE port;
static end ends[2 * PAIRS];
static uint64_t balls[PAIRS], posted, taken, handled, removals;
static int stop;
static pthread_barrier_t paused, resumed;

static void *worker(void *unused)
{
	(void)unused;
	SOCK_NOTIFY_REGISTRATION regs[DEQUEUE];
	OVERLAPPED_ENTRY entries[DEQUEUE];
	UINT32 count = 0, n;
	for (;;) {
		IS(ProcessSocketNotifications(port, count, count ? regs : NULL, INFINITE, DEQUEUE, entries, &n), ERROR_SUCCESS);
		for (UINT32 i = 0; i < count; i++)
			IS(regs[i].registrationResult, ERROR_SUCCESS);
		CHECK(n >= 1 && n <= DEQUEUE);
		count = 0;
		int pause = 0, quit = 0;
		for (UINT32 i = 0; i < n; i++) {
			UINT32 events = SocketNotificationRetrieveEvents(&entries[i]);
			switch (entries[i].lpCompletionKey) {
			case POST:
				__atomic_add_fetch(&taken, (uintptr_t)entries[i].lpOverlapped, __ATOMIC_SEQ_CST);
				continue;
			case PAUSE:
				pause++;
				continue;
			case QUIT:
				quit++;
				continue;
			}
			end *e = (end *)entries[i].lpCompletionKey;
			CHECK(!e->removed);
			if (events == SOCK_NOTIFY_EVENT_REMOVE) {
				e->removed = 1;
				__atomic_add_fetch(&removals, 1, __ATOMIC_SEQ_CST);
				continue;
			}
			IS(events, SOCK_NOTIFY_EVENT_IN);
			IS(__atomic_exchange_n(&e->held, 1, __ATOMIC_SEQ_CST), 0); // one notification an enable
			uint64_t ball;
			IS(recv(e->socket, &ball, sizeof ball, 0), sizeof ball);
			IS(ball, *e->ball + 1);
			*e->ball = ball;
			__atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
			__atomic_store_n(&e->held, 0, __ATOMIC_SEQ_CST);
			if (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
				ball++;
				IS(send(e->socket, &ball, sizeof ball, 0), sizeof ball);
			}
			SOCK_NOTIFY_REGISTRATION again = {e->socket, e, SOCK_NOTIFY_EVENT_IN, SOCK_NOTIFY_OP_ENABLE, ONESHOT, 4711};
			regs[count++] = again;
		}
		// A thread that took the pauses or the ends of others gives them back.
		for (; pause > 1; pause--)
			CHECK(PostQueuedCompletionStatus(port, 0, PAUSE, NULL));
		for (; quit > 1; quit--)
			CHECK(PostQueuedCompletionStatus(port, 0, QUIT, NULL));
		if (pause) {
			for (UINT32 i = 0; i < count; i++) {
				IS(ProcessSocketNotifications(port, 1, &regs[i], 0, 0, NULL, NULL), ERROR_SUCCESS);
				IS(regs[i].registrationResult, ERROR_SUCCESS);
			}
			count = 0;
			pthread_barrier_wait(&paused);
			pthread_barrier_wait(&resumed);
		}
		if (quit)
			return NULL;
	}
}

static void *poster(void *unused)
{
	(void)unused;
	for (uintptr_t i = 1; !__atomic_load_n(&stop, __ATOMIC_SEQ_CST); i++) {
		CHECK(PostQueuedCompletionStatus(port, 0, POST, (LPOVERLAPPED)i));
		__atomic_add_fetch(&posted, i, __ATOMIC_SEQ_CST);
		if (i % 64 == 0)
			Sleep(1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 2 ? atoi(argv[1]) : 0;
	double seconds = argc > 2 ? atof(argv[2]) : 0;
	CHECK(threads > 0 && threads <= 256);
	port = new_port();
	pthread_barrier_init(&paused, NULL, (unsigned)threads + 1);
	pthread_barrier_init(&resumed, NULL, (unsigned)threads + 1);
	for (int i = 0; i < PAIRS; i++) {
		SOCKET pair[2];
		new_pair(pair, SOCK_STREAM);
		for (int j = 0; j < 2; j++) {
			end *e = &ends[2 * i + j];
			*e = (end){pair[j], pair[!j], &balls[i], 0, 0};
			IS(apply(port, e->socket, e, SOCK_NOTIFY_EVENT_IN, SOCK_NOTIFY_OP_ENABLE, ONESHOT), ERROR_SUCCESS);
		}
	}
	pthread_t workers[256], posting;
	for (int i = 0; i < threads; i++)
		CHECK(pthread_create(&workers[i], NULL, worker, NULL) == 0);
	CHECK(pthread_create(&posting, NULL, poster, NULL) == 0);
	uint64_t one = 1;
	for (int i = 0; i < PAIRS; i++)
		IS(send(ends[2 * i].socket, &one, sizeof one, 0), sizeof one);

	usleep((useconds_t)(seconds * 1e6));
	__atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
	pthread_join(posting, NULL);
	for (int i = 0; i < threads; i++)
		CHECK(PostQueuedCompletionStatus(port, 0, PAUSE, NULL));
	pthread_barrier_wait(&paused); // no thread has a socket, and none will get one: all are enabled
	SOCK_NOTIFY_REGISTRATION remove[2 * PAIRS];
	for (int i = 0; i < 2 * PAIRS; i++)
		remove[i] = (SOCK_NOTIFY_REGISTRATION){ends[i].socket, NULL, 0, SOCK_NOTIFY_OP_REMOVE, 0, 4711};
	IS(ProcessSocketNotifications(port, 2 * PAIRS, remove, 0, 0, NULL, NULL), ERROR_SUCCESS);
	for (int i = 0; i < 2 * PAIRS; i++)
		IS(remove[i].registrationResult, ERROR_SUCCESS);
	pthread_barrier_wait(&resumed);
	for (int ms = 0; __atomic_load_n(&removals, __ATOMIC_SEQ_CST) < 2 * PAIRS; ms++) {
		CHECK(ms < PATIENCE);
		Sleep(1);
	}
	for (int i = 0; i < threads; i++)
		CHECK(PostQueuedCompletionStatus(port, 0, QUIT, NULL));
	for (int i = 0; i < threads; i++)
		pthread_join(workers[i], NULL);
	none(port);
	IS(removals, 2 * PAIRS);
	IS(taken, posted);
	uint64_t received = 0, left = 0;
	for (int i = 0; i < PAIRS; i++) {
		uint64_t ball;
		for (int j = 0; j < 2; j++) // a ball that came after the pause
			if (recv(ends[2 * i + j].socket, &ball, sizeof ball, MSG_DONTWAIT) == sizeof ball) {
				IS(ball, balls[i] + 1);
				left++;
			}
		received += balls[i];
	}
	IS(received, handled);
	CHECK(CloseHandle(port));
	for (int i = 0; i < 2 * PAIRS; i++)
		IS(closesocket(ends[i].socket), 0);
	printf("%d threads: %llu notifications, %llu balls left\n", threads, (unsigned long long)handled, (unsigned long long)left);
	return 0;
}
