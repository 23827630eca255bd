package kqueue

// receipt is a flag that x/sys does not know here.
const receipt = 0
