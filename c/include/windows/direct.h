/* Windows' direct.h: folders. */
#ifndef SN_DIRECT_H
#define SN_DIRECT_H

#include <sys/stat.h>
#include <unistd.h>

#define _mkdir(path) mkdir((path), 0777)
#define _rmdir rmdir
#define _chdir chdir
#define _getcwd(buffer, size) getcwd((buffer), (size_t)(size))

#endif
