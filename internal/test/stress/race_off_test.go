//go:build !race

package stress

const defaultPosts = 1_000_000
