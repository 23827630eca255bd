// TransmitFile: see battery.h.
#include "battery.h"

#include <io.h>

enum { BYTES = 300000 };

static char text[BYTES], got[BYTES + 64];
static LPFN_TRANSMITFILE transmit_file;

// file makes a file of BYTES bytes, which is deleted when it is closed.
static FILE *file(void)
{
	FILE *f = tmpfile();
	need(f != NULL, "tmpfile");
	for (int i = 0; i < BYTES; i++)
		text[i] = (char)('a' + i % 23);
	need(fwrite(text, 1, BYTES, f) == BYTES && fflush(f) == 0, "fwrite");
	return f;
}

static HANDLE handle(FILE *f) { return (HANDLE)_get_osfhandle(_fileno(f)); }

static void is_connected(SOCKET s[2])
{
	struct sockaddr_in at;
	SOCKET l = listener(&at);
	s[1] = tcp();
	need(connect(s[1], (struct sockaddr *)&at, sizeof at) == 0, "connect");
	s[0] = accept(l, NULL, NULL);
	need(s[0] != INVALID_SOCKET, "accept");
	closesocket(l);
}

struct reader {
	SOCKET s;
	int most, n;
};

// reads receives a number of bytes, or to the end of the stream.
static DWORD WINAPI reads(LPVOID of)
{
	struct reader *r = of;
	int n = 1;
	while (r->n < r->most && n > 0) {
		n = recv(r->s, got + r->n, r->most - r->n, 0);
		r->n += n > 0 ? n : 0;
	}
	return 0;
}

static HANDLE reader(struct reader *r, SOCKET s, int most)
{
	r->s = s;
	r->most = most;
	r->n = 0;
	HANDLE h = CreateThread(NULL, 0, reads, r, 0, NULL);
	need(h != NULL, "CreateThread");
	return h;
}

// received prints what a reader has: a number of bytes before the file's, those of the file, and those after it.
static void received(const char *name, HANDLE thread, struct reader *r, int before, int from, int size)
{
	need(WaitForSingleObject(thread, PATIENCE) == WAIT_OBJECT_0, "WaitForSingleObject");
	CloseHandle(thread);
	printf("%s: %d bytes, before \"%.*s\", the file's %d, after \"%.*s\"\n", name, r->n, before, got,
		memcmp(got + before, text + from, (size_t)size) == 0, r->n - before - size, got + before + size);
}

int main(void)
{
	SOCKET s[2];
	struct reader r;
	OVERLAPPED o = {0};
	GUID id = WSAID_TRANSMITFILE;
	DWORD n;
	TRANSMIT_FILE_BUFFERS around = {(char *)"head:", 5, (char *)":tail", 5};
	begin();
	is_connected(s);
	need(WSAIoctl(s[0], SIO_GET_EXTENSION_FUNCTION_POINTER, &id, sizeof id, &transmit_file, sizeof transmit_file, &n, NULL, NULL) == 0,
		"WSAIoctl");
	FILE *f = file();

	rewind(f);
	HANDLE h = reader(&r, s[1], BYTES + 10);
	printf("all: %d\n", transmit_file(s[0], handle(f), 0, 0, NULL, &around, 0));
	received("all", h, &r, 5, 0, BYTES);

	rewind(f);
	h = reader(&r, s[1], 1000);
	printf("a part: %d\n", transmit_file(s[0], handle(f), 1000, 0, NULL, NULL, 0));
	received("a part", h, &r, 0, 0, 1000);

	h = reader(&r, s[1], 10);
	printf("no file: %d\n", transmit_file(s[0], NULL, 0, 0, NULL, &around, 0));
	received("no file", h, &r, 5, 0, 0);

	associate(s[0], 7);
	o.Offset = 100;
	h = reader(&r, s[1], 2010);
	BOOL ok = transmit_file(s[0], handle(f), 2000, 0, &o, &around, 0);
	printf("overlapped: %d\n", ok || WSAGetLastError() == WSA_IO_PENDING);
	dequeued("overlapped", &o);
	received("overlapped", h, &r, 5, 100, 2000);
	fclose(f);
	closesocket(s[0]);
	closesocket(s[1]);
	return 0;
}
