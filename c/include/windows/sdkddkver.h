/* Windows' sdkddkver.h: there are no versions here. */
