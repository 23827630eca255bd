// Package handles provides tests with the list of the process's open descriptors or handles. On Windows it can also
// create a handle with a given number.
package handles
