package sockettest

const more = 0x4000 // POLLRDHUP, which x/sys does not know here
