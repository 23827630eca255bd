package poll

// maxEntries is OPEN_MAX. macOS refuses to poll more entries.
const maxEntries = 10240
