package sock

// A description holds the properties of a handle that Adopt and Attach need.
type description struct{ stream, tcp, listening, blocking bool }
