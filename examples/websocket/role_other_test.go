//go:build !linux

package main

func playRole() bool { return false }
