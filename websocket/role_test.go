package websocket

func playRole() bool { return false }
