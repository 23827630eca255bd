//go:build !race

package swarm

const defaultPosts = 1_000_000
