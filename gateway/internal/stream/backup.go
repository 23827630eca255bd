package stream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A backup is a line with backupHead as JSON, the stream as JetStream writes it, and the SHA-256 of both. The sum shows a
// file that is incomplete, which JetStream does not always notice.
type backupHead struct {
	Backup int             // the version of the format
	Config json.RawMessage // of the stream
	State  json.RawMessage
}

const (
	backupVersion = 1
	backupChunk   = 128 << 10 // bytes in one message; JetStream has up to 8 MiB of them on the way
	maxBackupHead = 1 << 20
)

// ErrBackup is returned for a file that is no backup, or is damaged or incomplete.
var ErrBackup = errors.New("gateway: not a complete backup")

// Backup writes a stream to w, as gateway.Backup says.
func Backup(ctx context.Context, conn *nats.Conn, stream string, w io.Writer) error {
	if stream == "" {
		stream = DefaultName
	}
	inbox := conn.NewInbox()
	chunks, err := conn.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("gateway: backup: %w", err)
	}
	defer chunks.Unsubscribe()
	if err := chunks.SetPendingLimits(-1, -1); err != nil {
		return fmt.Errorf("gateway: backup: %w", err)
	}
	var answer struct {
		Error  *apiError
		Config json.RawMessage
		State  json.RawMessage
	}
	request := map[string]any{"deliver_subject": inbox, "no_consumers": true, "chunk_size": backupChunk}
	if err := CallAPI(ctx, conn, "$JS.API.STREAM.SNAPSHOT."+stream, event.Encode(request), &answer); err != nil {
		return fmt.Errorf("gateway: backup: %w", err)
	}
	if answer.Error != nil {
		return fmt.Errorf("gateway: backup: stream %s: %s", stream, answer.Error.Description)
	}
	sum := sha256.New()
	out := bufio.NewWriter(io.MultiWriter(w, sum))
	out.Write(append(event.Encode(backupHead{backupVersion, answer.Config, answer.State}), '\n')) // an error is returned by Flush
	for {
		next, cancel := context.WithTimeout(ctx, RequestTimeout)
		m, err := chunks.NextMsgWithContext(next)
		cancel()
		if err != nil {
			return fmt.Errorf("gateway: backup: %w", err)
		}
		if status := m.Header.Get("Status"); status != "" && status != "204" {
			return fmt.Errorf("gateway: backup: %s %s", status, m.Header.Get("Description"))
		}
		if len(m.Data) == 0 {
			break
		}
		if _, err := out.Write(m.Data); err != nil {
			return fmt.Errorf("gateway: backup: %w", err)
		}
		if m.Reply != "" { // JetStream sends more
			if err := m.Respond(nil); err != nil {
				return fmt.Errorf("gateway: backup: %w", err)
			}
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("gateway: backup: %w", err)
	}
	if _, err := w.Write(sum.Sum(nil)); err != nil {
		return fmt.Errorf("gateway: backup: %w", err)
	}
	return nil
}

// Close ends a stream that is to be moved, as gateway.CloseStream says.
func Close(ctx context.Context, conn *nats.Conn, stream string) error {
	if stream == "" {
		stream = DefaultName
	}
	js, err := jetstream.New(conn)
	if err == nil {
		err = updateStream(ctx, js, stream, func(info *jetstream.StreamInfo) {
			info.Config.Metadata[closedKey] = "true"
			info.Config.Subjects = []string{noSubject}
		})
	}
	if err != nil {
		return fmt.Errorf("gateway: close the stream: %w", err)
	}
	return nil
}

// ErrClosed is returned for a stream that closeStream has ended.
var ErrClosed = errors.New("gateway: the stream was closed, to be moved")

// noSubject is the subject of a stream that takes no event. Nothing is published to it.
const noSubject = "push.none"

// Restore makes the stream c.Name from a backup. endEra must follow. It fails with errBackup if the
// file is not one; other errors may be temporary.
func Restore(ctx context.Context, conn *nats.Conn, c Config) error {
	size, err := checkSum(c.Restore)
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(io.LimitReader(c.Restore, size), maxBackupHead)
	line, err := in.ReadSlice('\n')
	var head backupHead
	config := map[string]any{}
	if err != nil || json.Unmarshal(line, &head) != nil || head.Backup != backupVersion ||
		json.Unmarshal(head.Config, &config) != nil {
		return fmt.Errorf("%w: its first line is not that of a backup", ErrBackup)
	}
	if config["name"] != c.Name {
		return fmt.Errorf("%w: it is of the stream %v, not %s", ErrBackup, config["name"], c.Name)
	}
	config["num_replicas"] = cmp.Or(c.Replicas, 1)
	// Until it has its new epoch, the stream takes no event. Its last sequence must not change
	// before that, and the state in the backup may be older than its events.
	config["subjects"] = []string{noSubject}
	metadata, ok := config["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		config["metadata"] = metadata
	}
	metadata[restoringKey] = "true"
	var answer struct {
		Error   *apiError
		Deliver string `json:"deliver_subject"`
	}
	request := event.Encode(map[string]any{"config": config, "state": head.State})
	if err := CallAPI(ctx, conn, "$JS.API.STREAM.RESTORE."+c.Name, request, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return errors.New(answer.Error.Description)
	}
	chunk := make([]byte, backupChunk)
	for {
		n, err := io.ReadFull(in, chunk)
		if n > 0 {
			if err := sendChunk(ctx, conn, answer.Deliver, chunk[:n]); err != nil {
				return err
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return sendChunk(ctx, conn, answer.Deliver, nil)
		default:
			return err
		}
	}
}

// checkSum checks the sum at the end of a backup, before JetStream gets any of it. It returns the
// number of bytes that are before the sum, and goes back to the first one.
func checkSum(file io.ReadSeeker) (size int64, err error) {
	size, err = file.Seek(-sha256.Size, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("%w: it ends too early", ErrBackup)
	}
	want, err := io.ReadAll(file)
	if err != nil {
		return 0, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, file, size); err != nil {
		return 0, err
	}
	if !bytes.Equal(want, sum.Sum(nil)) {
		return 0, fmt.Errorf("%w: it is damaged or incomplete", ErrBackup)
	}
	_, err = file.Seek(0, io.SeekStart)
	return size, err
}

// sendChunk sends a part of a backup, or nil for its end, and waits until it is taken.
func sendChunk(ctx context.Context, conn *nats.Conn, to string, b []byte) error {
	ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	m, err := conn.RequestWithContext(ctx, to, b)
	if err != nil || len(m.Data) == 0 {
		return err
	}
	var answer struct{ Error *apiError }
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fmt.Errorf("%w: %w", errUnexpected, err)
	}
	if answer.Error != nil {
		return errors.New(answer.Error.Description)
	}
	return nil
}

// chunkTimeout is longer than requestTimeout, for JetStream writes the events to its files before it answers the last part.
const chunkTimeout = time.Minute
