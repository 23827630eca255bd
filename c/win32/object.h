// What threads and events share: a handle, and a state that threads wait for.
#ifndef SN_OBJECT_H
#define SN_OBJECT_H

#include <pthread.h>

#include "../layer.h"
#include "../include/win32.h"

// An object is kept until its handle was closed and, of a thread, until it has ended.
struct object {
	unsigned kind;
	bool signaled;
	bool resets; // an event that a wait which it satisfies resets
	bool runs;   // a thread that has not ended
	bool closed;
	uint32_t index;
};

// The lock guards all objects, and sn_objects_changed is broadcast when one is signaled.
extern pthread_mutex_t sn_objects;
extern pthread_cond_t sn_objects_changed;

// sn_object_add gives an object a handle, which is NULL if there is no memory. sn_object_find
// returns the object of a handle, or NULL. sn_object_drop removes the handle, and frees the object
// unless it runs. The lock is held.
HANDLE sn_object_add(struct object *o);
struct object *sn_object_find(HANDLE h, unsigned kind);
void sn_object_drop(struct object *o);

#endif
