// Command echo is the program of the README. A test keeps the two alike, and runs it.
package main
