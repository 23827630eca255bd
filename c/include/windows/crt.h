/* Functions of Microsoft's C library that its stdio.h, stdlib.h and string.h have. */
#ifndef SN_CRT_H
#define SN_CRT_H

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

typedef int errno_t;

#ifndef NOMINMAX
#ifdef __cplusplus
/* These are macros there. std::min of equal types goes before a template of two. */
extern "C++" {
template <class A, class B> static inline auto min(A a, B b) -> decltype(a < b ? A(a) : B(b))
{
	return a < b ? a : b;
}
template <class A, class B> static inline auto max(A a, B b) -> decltype(a < b ? B(b) : A(a))
{
	return a < b ? b : a;
}
}
#else
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#endif
#endif

#define _TRUNCATE ((size_t)-1)

/*
 * A text that does not fit is an error, and leaves an empty one. Microsoft's library ends the
 * process there.
 */
static inline int sn_vsprintf_s(char *to, size_t size, const char *format, va_list arguments)
{
	int n = vsnprintf(to, size, format, arguments);
	if (n >= 0 && (size_t)n < size)
		return n;
	if (size > 0)
		to[0] = 0;
	return -1;
}

/* _vsnprintf_s writes at most count characters. More is an error unless count is _TRUNCATE. */
static inline int sn_vsnprintf_s(char *to, size_t size, size_t count, const char *format,
	va_list arguments)
{
	size_t room = count < size ? count + 1 : size;
	int n = vsnprintf(to, room, format, arguments);
	if (n >= 0 && (size_t)n < room)
		return n;
	if (n < 0 && size > 0)
		to[0] = 0;
	return -1;
}

__attribute__((format(printf, 3, 4)))
static inline int sn_sprintf_s(char *to, size_t size, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int n = sn_vsprintf_s(to, size, format, arguments);
	va_end(arguments);
	return n;
}

__attribute__((format(printf, 4, 5)))
static inline int sn_snprintf_s(char *to, size_t size, size_t count, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int n = sn_vsnprintf_s(to, size, count, format, arguments);
	va_end(arguments);
	return n;
}

static inline errno_t sn_strncpy_s(char *to, size_t size, const char *from, size_t count)
{
	size_t n = strnlen(from, count);
	if (n >= size) {
		if (size > 0)
			to[0] = 0;
		if (count != _TRUNCATE || size == 0)
			return ERANGE;
		n = size - 1;
	}
	memmove(to, from, n);
	to[n] = 0;
	return 0;
}

static inline errno_t sn_strcpy_s(char *to, size_t size, const char *from)
{
	return sn_strncpy_s(to, size, from, strlen(from));
}

static inline errno_t sn_strcat_s(char *to, size_t size, const char *from)
{
	size_t n = strnlen(to, size);
	return sn_strncpy_s(to + n, size - n, from, strlen(from));
}

static inline errno_t sn_memcpy_s(void *to, size_t size, const void *from, size_t n)
{
	if (n > size) {
		memset(to, 0, size);
		return ERANGE;
	}
	memcpy(to, from, n);
	return 0;
}

static inline errno_t sn_fopen_s(FILE **file, const char *name, const char *mode)
{
	*file = fopen(name, mode);
	return *file != NULL ? 0 : errno;
}

static inline errno_t sn_localtime_s(struct tm *to, const time_t *from)
{
	return localtime_r(from, to) != NULL ? 0 : errno;
}

#ifdef __cplusplus
extern "C++" {
/* In C++ the size may be left out if the destination is an array. */
template <size_t N>
static inline int sn_vsprintf_s(char (&to)[N], const char *format, va_list arguments)
{
	return sn_vsprintf_s(to, N, format, arguments);
}
template <size_t N, class... A>
static inline int sn_sprintf_s(char (&to)[N], const char *format, A... arguments)
{
	return sn_sprintf_s(&to[0], N, format, arguments...);
}
template <size_t N, class... A>
static inline int sn_snprintf_s(char (&to)[N], size_t count, const char *format, A... arguments)
{
	return sn_snprintf_s(&to[0], N, count, format, arguments...);
}
template <size_t N>
static inline errno_t sn_strncpy_s(char (&to)[N], const char *from, size_t count)
{
	return sn_strncpy_s(to, N, from, count);
}
template <size_t N> static inline errno_t sn_strcpy_s(char (&to)[N], const char *from)
{
	return sn_strcpy_s(to, N, from);
}
template <size_t N> static inline errno_t sn_strcat_s(char (&to)[N], const char *from)
{
	return sn_strcat_s(to, N, from);
}
}
#endif

#define vsprintf_s sn_vsprintf_s
#define _vsnprintf_s sn_vsnprintf_s
#define sprintf_s sn_sprintf_s
#define _snprintf_s sn_snprintf_s
#define strncpy_s sn_strncpy_s
#define strcpy_s sn_strcpy_s
#define strcat_s sn_strcat_s
#define memcpy_s sn_memcpy_s
#define fopen_s sn_fopen_s
#define localtime_s sn_localtime_s
#define printf_s printf
#define fprintf_s fprintf
#define _snprintf snprintf
#define _vsnprintf vsnprintf
#define strtok_s strtok_r
#define _strdup strdup
#define _stricmp strcasecmp
#define _strnicmp strncasecmp
#define stricmp strcasecmp

#endif
