#define _GNU_SOURCE
#include "sn.h"

#include "_cgo_export.h"

static const struct sn_objects *objects; // NULL if there are none; written before main

void sn_use_objects(const struct sn_objects *functions) { objects = functions; }

bool sn_reset(HANDLE event) { return objects != NULL && objects->set(event, false); }

void sn_signal(uintptr_t event)
{
	int error = errno;
	if (objects != NULL)
		objects->set((HANDLE)event, true); // which the program may have closed
	errno = error;
}

void sn_wake_waits(void)
{
	if (objects != NULL)
		objects->wake();
}

BOOL sn_CloseHandle(HANDLE h)
{
	if (sn_is_descriptor(h))
		return sn_closesocket((SOCKET)h) == 0 || (sn_GetLastError() == WSAENOTSOCK && sn_fail(ERROR_INVALID_HANDLE));
	switch (sn_kind(h)) {
	case SN_KIND_PORT:
		if (atomic_load(&sn_forked))
			return sn_fail(ERROR_NOT_SUPPORTED);
		if (snGoClosePort((uintptr_t)h) == ERROR_SUCCESS)
			return TRUE;
		break;
	case SN_KIND_THREAD:
	case SN_KIND_EVENT:
		if (objects != NULL && objects->close(h))
			return TRUE;
		break;
	}
	return sn_fail(ERROR_INVALID_HANDLE);
}
