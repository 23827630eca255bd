package main

// A difference is a test that fails for a reason that is known.
type difference struct {
	pkg, test string // test is a regular expression for the whole name
	http2     bool   // only with -http2
	sometimes bool   // it may also pass
	why       string
}

var differences = []difference{}
