//go:build race

package swarm

const defaultPosts = 100_000
