package kqueue

// receipt is 0, because x/sys does not define EV_RECEIPT for NetBSD.
const receipt = 0
