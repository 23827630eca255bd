//go:build race

package stress

const defaultPosts = 100_000
