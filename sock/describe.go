package sock

// A description is what Adopt and Attach need to know of a handle.
type description struct{ stream, tcp, listening, blocking bool }
