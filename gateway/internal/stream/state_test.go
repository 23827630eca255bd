package stream

import (
	"testing"
	"time"
)

// A leader is confirmed that has heard from most of the replicas.
func TestConfirmed(t *testing.T) {
	for name, c := range map[string]struct {
		state State
		want  bool
	}{
		"no members": {State{}, false},
		"heard from one of two": {State{Members: []Replica{
			{Leader: true}, {Active: time.Second}, {Active: time.Minute}}}, true},
		"heard from none": {State{Members: []Replica{
			{Leader: true}, {Active: time.Minute}, {Active: time.Minute}}}, false},
		"offline": {State{Members: []Replica{
			{Leader: true}, {Offline: true}, {Offline: true}}}, false},
		"no leader": {State{Members: []Replica{
			{Active: time.Second}, {Active: time.Second}, {Active: time.Minute}}}, false},
	} {
		if got := c.state.confirmed(); got != c.want {
			t.Errorf("%s: confirmed is %v", name, got)
		}
	}
}
