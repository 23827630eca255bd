// Handles: see battery.h. The two lowest bits of a handle are 0, and belong to the program. Bit 0 of
// hEvent says that the completion of an operation is not queued.
#include "battery.h"

enum { COUNT = 24 };

static DWORD WINAPI thread(LPVOID unused)
{
	(void)unused;
	return 0;
}

static HANDLE event(void)
{
	HANDLE h = CreateEventW(NULL, TRUE, FALSE, NULL);
	need(h != NULL, "CreateEvent");
	return h;
}

static HANDLE tagged(HANDLE h, ULONG_PTR bits) { return (HANDLE)((ULONG_PTR)h | bits); }

static unsigned tags(HANDLE h) { return (unsigned)((ULONG_PTR)h & 3); }

// made has handles of each kind, in turn, so that events come at odd places.
static struct {
	HANDLE event, thread, port;
} made[COUNT];

static void make(void)
{
	unsigned events = 0, threads = 0, ports = 0;
	for (int i = 0; i < COUNT; i++) {
		made[i].event = event();
		if (i % 2 == 0)
			made[i].thread = CreateThread(NULL, 0, thread, NULL, 0, NULL);
		if (i % 3 != 0)
			made[i].port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
		events |= tags(made[i].event);
		threads |= tags(made[i].thread);
		ports |= tags(made[i].port);
	}
	printf("low bits: of events %u, of threads %u, of ports %u\n", events, threads, ports);
	HMODULE modules[] = {LoadLibraryA("ws2_32.dll"), LoadLibraryA("mswsock"), LoadLibraryA("kernel32"), LoadLibraryA("ntdll")};
	unsigned of_modules = 0;
	for (int i = 0; i < 4; i++)
		of_modules |= modules[i] == NULL ? 4 : tags((HANDLE)modules[i]);
	printf("of modules %u\n", of_modules);
}

static int is_set(HANDLE h) { return WaitForSingleObject(h, 0) == WAIT_OBJECT_0; }

// An operation starts with an OVERLAPPED, and goes on when it is finished.
struct kind {
	const char *name;
	void (*start)(OVERLAPPED *o);
	void (*finish)(void);
};

static SOCKET s[2], listens, datagrams, connects, accepted;
static struct sockaddr_in listens_at, datagrams_at, from;
static int from_size;
static char b[64], block[2 * PART];
static WSABUF buffer = {1, b};
static DWORD n, flags;

static void start_receive(OVERLAPPED *o) { receive("receive", s[0], b, 1, o); }
static void finish_receive(void) { need(send(s[1], "x", 1, 0) == 1, "send"); }
static void start_send(OVERLAPPED *o) { started("send", WSASend(s[0], &buffer, 1, NULL, 0, o, NULL) == 0); }
static void finish_send(void) { need(recv(s[1], b, 1, 0) == 1, "recv"); }
static void start_from(OVERLAPPED *o)
{
	from_size = sizeof from;
	flags = 0;
	started("receive from", WSARecvFrom(datagrams, &buffer, 1, NULL, &flags, (struct sockaddr *)&from, &from_size, o, NULL) == 0);
}
static void finish_from(void)
{
	need(sendto(datagrams, "x", 1, 0, (struct sockaddr *)&datagrams_at, sizeof datagrams_at) == 1, "sendto");
}
static void start_to(OVERLAPPED *o)
{
	started("send to",
		WSASendTo(datagrams, &buffer, 1, NULL, 0, (struct sockaddr *)&datagrams_at, sizeof datagrams_at, o, NULL) == 0);
}
static void finish_to(void) { need(recv(datagrams, b, 1, 0) == 1, "recv"); }
static void start_accept(OVERLAPPED *o)
{
	accepted = tcp();
	started("accept", accept_ex(listens, accepted, block, 0, PART, PART, &n, o));
}
static void finish_accept(void)
{
	connects = tcp();
	need(connect(connects, (struct sockaddr *)&listens_at, sizeof listens_at) == 0, "connect");
}
static void start_connect(OVERLAPPED *o)
{
	struct sockaddr_in at;
	connects = bound(&at);
	associate(connects, 1);
	started("connect", connect_ex(connects, (struct sockaddr *)&listens_at, sizeof listens_at, NULL, 0, &n, o));
}
static void finish_connect(void)
{
	accepted = accept(listens, NULL, NULL);
	need(accepted != INVALID_SOCKET, "accept");
}

static const struct kind kinds[] = {
	{"receive", start_receive, finish_receive}, {"send", start_send, finish_send},
	{"receive from", start_from, finish_from}, {"send to", start_to, finish_to},
	{"accept", start_accept, finish_accept}, {"connect", start_connect, finish_connect},
};

static void close_both(void)
{
	if (connects != INVALID_SOCKET)
		closesocket(connects);
	if (accepted != INVALID_SOCKET)
		closesocket(accepted);
	connects = accepted = INVALID_SOCKET;
}

// operations has each event as hEvent of each kind of operation: as it is, and with bit 0.
static void operations(const struct kind *k)
{
	int queued = 0, signaled = 0, quiet = 0, signaled_quietly = 0, others = 0;
	for (int i = 0; i < COUNT; i++) {
		OVERLAPPED o = {0}, of_bit = {0};
		o.hEvent = made[i].event;
		SetEvent(made[i].event); // the start resets it
		k->start(&o);
		k->finish();
		struct completion c = next();
		need(c.o != NULL, k->name); // or each event would cost the patience
		queued += c.o == &o && c.error == 0;
		signaled += is_set(made[i].event);
		close_both();

		of_bit.hEvent = tagged(made[i].event, 1);
		k->start(&of_bit);
		k->finish();
		need(WaitForSingleObject(made[i].event, PATIENCE) == WAIT_OBJECT_0, k->name);
		signaled_quietly++;
		PostQueuedCompletionStatus(port, 0, 0, NULL);
		quiet += next().o == NULL;
		close_both();

		ResetEvent(made[i].event);
		for (int other = 0; other < COUNT; other++)
			others += is_set(made[other].event);
	}
	printf("%s: %d queued, %d signaled; with bit 0 %d quiet, %d signaled; others signaled %d\n", k->name, queued,
		signaled, quiet, signaled_quietly, others);
}

// A call takes a handle with the program's bits.
static void calls(void)
{
	int set = 0, reset = 0, posted = 0, waited = 0, closed = 0, bits = 0;
	for (int i = 0; i < COUNT; i++) {
		HANDLE h = tagged(made[i].event, 1 + i % 3);
		set += SetEvent(h) && is_set(h) && is_set(made[i].event);
		reset += ResetEvent(h) && !is_set(made[i].event);
		if (made[i].thread != NULL)
			waited += WaitForSingleObject(tagged(made[i].thread, 1), PATIENCE) == WAIT_OBJECT_0;
		if (made[i].port != NULL)
			posted += PostQueuedCompletionStatus(tagged(made[i].port, 2), 0, 0, NULL) != 0;
		OVERLAPPED o = {0};
		o.hEvent = tagged(made[i].event, 2); // bit 1 says nothing
		start_receive(&o);
		finish_receive();
		bits += next().o == &o && is_set(made[i].event);
		closed += CloseHandle(h) && !CloseHandle(made[i].event);
		if (made[i].thread != NULL)
			closed += CloseHandle(tagged(made[i].thread, 3)) != 0;
		if (made[i].port != NULL)
			closed += CloseHandle(tagged(made[i].port, 3)) != 0;
	}
	printf("with bits: set %d, reset %d, waited %d, posted %d, received %d, closed %d\n", set, reset, waited, posted, bits, closed);
}

int main(void)
{
	int size = sizeof datagrams_at;
	begin();
	make();
	connected(s, 1);
	listens = listener(&listens_at);
	associate(listens, 1);
	datagrams = WSASocketW(AF_INET, SOCK_DGRAM, 0, NULL, 0, WSA_FLAG_OVERLAPPED);
	datagrams_at.sin_family = AF_INET;
	datagrams_at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(bind(datagrams, (struct sockaddr *)&datagrams_at, sizeof datagrams_at) == 0, "bind");
	need(getsockname(datagrams, (struct sockaddr *)&datagrams_at, &size) == 0, "getsockname");
	associate(datagrams, 1);
	connects = accepted = INVALID_SOCKET;
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		operations(&kinds[i]);
	calls();
	nothing("at the end");
	CloseHandle(port);
	WSACleanup();
	return 0;
}
