package poll

// maxEntries is OPEN_MAX, beyond which macOS refuses to poll.
const maxEntries = 10240
