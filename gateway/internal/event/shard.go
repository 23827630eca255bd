package event

import "strconv"

// MaxShards bounds the streams over which topics are spread.
const MaxShards = 64

// shardPrefix begins the subjects of durable topics where there are several shards. The number of the
// shard and a dot follow.
const shardPrefix = "push.s."

// ShardsSubject matches all subjects below shardPrefix.
const ShardsSubject = shardPrefix + ">"

// ShardOf returns which of n shards has the events of a durable topic. The gateway's own topics are in
// the first one. Stored events depend on the result, so it must stay as it is: FNV-1a of 64 bits.
func ShardOf(topic string, n int) int {
	if n < 2 || IsReserved(topic) {
		return 0
	}
	h := uint64(14695981039346656037)
	for i := range len(topic) {
		h = (h ^ uint64(topic[i])) * 1099511628211
	}
	return int((h ^ h>>32) % uint64(n)) // the low bits of FNV alone depend on few bits of the topic
}

// StoredIn returns the prefix of the subjects whose events one of n shards stores.
func StoredIn(shard, n int) string {
	if n < 2 {
		return StoredPrefix
	}
	return shardPrefix + strconv.Itoa(shard) + "."
}
