/*
 * The words of Microsoft's compiler. With -include msvc.h a source has them before its first line,
 * as there, and the macros by which programs know Windows.
 */
#ifndef SN_MSVC_H
#define SN_MSVC_H

#ifndef _WIN32
#define _WIN32 1
#endif
#ifndef _WIN64
#define _WIN64 1
#endif

#define __stdcall
#define _stdcall
#define __cdecl
#define _cdecl
#define __fastcall
#define __forceinline inline __attribute__((always_inline))
#define __int8 char
#define __int16 short
#define __int32 int
#define __int64 long long
#define __declspec(what) sn_declspec_##what
#define sn_declspec_align(n) __attribute__((aligned(n)))
#define sn_declspec_deprecated
#define sn_declspec_dllexport
#define sn_declspec_dllimport
#define sn_declspec_noinline __attribute__((noinline))
#define sn_declspec_noreturn __attribute__((noreturn))
#define sn_declspec_novtable
#define sn_declspec_selectany __attribute__((weak))
#define sn_declspec_thread __thread
#define __pragma(what)
#define __debugbreak() __builtin_trap()

/*
 * There are no structured exceptions. A block of __finally runs when the one before it has ended,
 * and not when it returns.
 */
#ifdef __cplusplus
#include <exception>
#ifndef __try /* which the C++ library has, too */
#define __try try
#endif
struct sn_leave {};
#define __leave throw sn_leave()
#define __except(filter) catch (const sn_leave &) {} catch (...)
#define __finally catch (const sn_leave &) {}
#else
#define __try
#define __except(filter) if (0)
#define __leave goto sn_leave /* of a function with one such block */
#define __finally sn_leave: __attribute__((unused));
#endif
#define EXCEPTION_EXECUTE_HANDLER 1

#endif
