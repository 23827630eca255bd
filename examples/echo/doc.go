// Command echo is the program of the README. A test verifies that both are equal, and runs it.
package main
