// The third program: 100 clients, 16 server threads. It has four slips of its own, which the driver makes up for:
//
//   - It does not count the server threads that it creates, and so never stops. The driver counts them, in the condition
//     of the loop.
//   - A successful AcceptConnection returns a variable that was never set. The driver is compiled with
//     -ftrivial-auto-var-init=zero.
//   - Several threads may be notified of one connection, and each calls accept, which blocks. Once all clients are gone, the
//     driver connects until every thread has come out.
//   - The backlog is 0, and 100 clients connect at once, which takes seconds where a system drops what exceeds it.
#include "driver.h"

#include <thread>

static UINT32 serverThreadCount; // outside of MultiThreadedTcpServer, which has a variable of this name
static bool created;

static HANDLE driver_thread(LPTHREAD_START_ROUTINE start, void *argument, UINT32 *count)
{
	created = count != &::serverThreadCount;
	return sn_CreateThread(NULL, 0, start, argument, 0, NULL);
}

static size_t driver_number(size_t n, UINT32 *count)
{
	if (count == &::serverThreadCount || !created)
		return n;
	created = false;
	return ++*count < n ? n : 0;
}

#undef CreateThread
#define CreateThread(attributes, stack, start, argument, flags, id) driver_thread(start, argument, &serverThreadCount)
#undef RTL_NUMBER_OF
#define RTL_NUMBER_OF(array) driver_number(sizeof(array) / sizeof((array)[0]), &serverThreadCount)
#define listen(s, backlog) listen(s, SOMAXCONN)

#include LISTINGS

int main()
{
	driver_loopback();
	std::atomic<bool> done(false);
	std::thread helper([&] {
		while (!done) {
			Sleep(10);
			if (removals < CLIENT_THREAD_COUNT)
				continue;
			sockaddr_in to = {};
			to.sin_family = AF_INET;
			to.sin_addr.s_addr = SERVER_ADDRESS;
			to.sin_port = SERVER_PORT;
			int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP);
			connect(s, (sockaddr *)&to, sizeof(to));
			Sleep(10);
			close(s);
		}
	});
	MultiThreadedTcpServer();
	done = true;
	helper.join();
	return driver_result(4L * CLIENT_LOOP_COUNT * CLIENT_THREAD_COUNT, CLIENT_THREAD_COUNT);
}
