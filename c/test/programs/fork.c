// After fork, a child gets ERROR_NOT_SUPPORTED, and the parent goes on.
#include "check.h"

#include <sys/wait.h>

int main(void)
{
	HANDLE port = new_port();
	CHECK(PostQueuedCompletionStatus(port, 1, 2, NULL));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		OVERLAPPED_ENTRY e;
		UINT32 n;
		SOCKET pair[2];
		IS(ProcessSocketNotifications(port, 0, NULL, INFINITE, 1, &e, &n), ERROR_NOT_SUPPORTED);
		CHECK(!GetQueuedCompletionStatusEx(port, &e, 1, &n, INFINITE, FALSE) && GetLastError() == ERROR_NOT_SUPPORTED);
		CHECK(!PostQueuedCompletionStatus(port, 1, 2, NULL) && GetLastError() == ERROR_NOT_SUPPORTED);
		CHECK(CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0) == NULL && GetLastError() == ERROR_NOT_SUPPORTED);
		CHECK(!CloseHandle(port) && GetLastError() == ERROR_NOT_SUPPORTED);
		new_pair(pair, SOCK_STREAM); // calls on sockets go on
		IS(send(pair[0], "x", 1, 0), 1);
		IS(closesocket(pair[0]), 0);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	IS(next(port).lpCompletionKey, 2);
	CHECK(CloseHandle(port));
	return 0;
}
