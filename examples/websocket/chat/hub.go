package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/socknotify/socknotify/websocket"
)

// A Hub has all connected members. A member is a connection, whose Value is its name.
type Hub struct {
	websocket.Server

	mu     sync.Mutex // held while a message is sent to all, so that all receive the messages in one order
	joined int
	here   int
}

// An Event is a message to a page, as JSON.
type Event struct {
	You  string `json:"you,omitempty"`  // the name of the receiver
	From string `json:"from,omitempty"` // the sender
	Text string `json:"text,omitempty"` // the text
	Here int    `json:"here,omitempty"` // how many are connected now
}

// MaxMessage is the length in bytes of the longest text.
const MaxMessage = 4 << 10

func newHub(ping time.Duration) *Hub {
	h := new(Hub)
	h.MaxMessage, h.PingInterval, h.PongTimeout, h.Compression = MaxMessage, ping, ping, 1
	h.CloseTimeout = time.Second
	h.OnOpen, h.OnMessage, h.OnClose = h.join, h.say, h.leave
	return h
}

func (h *Hub) join(c *websocket.Conn, _ *http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.joined++
	h.here++
	name := fmt.Sprint("Guest ", h.joined)
	c.Value = name
	c.Write(websocket.Text, encode(Event{You: name})) // if it fails, leave is called
	h.tellAll(Event{Here: h.here})
	return nil
}

func (h *Hub) say(c *websocket.Conn, kind websocket.Kind, text []byte) error {
	if kind != websocket.Text {
		return &websocket.CloseError{Code: websocket.CodeUnsupportedData, Reason: "want a text message"}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tellAll(Event{From: c.Value.(string), Text: string(text)})
	return nil
}

func (h *Hub) leave(*websocket.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.here--
	h.tellAll(Event{Here: h.here})
}

// tellAll sends an event to all members. It does not wait for any of them.
func (h *Hub) tellAll(e Event) {
	m, err := h.Prepare(websocket.Text, encode(e))
	if err != nil {
		panic(errors.Join(errors.New("JSON is text"), err))
	}
	h.Broadcast(m)
}

func encode(e Event) []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return b
}
