package stream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A backup is a line with backupHead as JSON, the stream as JetStream writes it, and the SHA-256 of both. The sum shows a
// file that is incomplete, which JetStream does not always notice.
//
// A backup of several streams has a line and a stream for each, the first stream at the end. Such a stream is in parts, each
// after its length as four bytes, and a length of 0 ends it.
type backupHead struct {
	Backup int             // the version of the format: backupVersion, or shardsVersion where there are several streams
	Config json.RawMessage // of the stream
	State  json.RawMessage
}

const (
	backupVersion = 1
	shardsVersion = 2
	backupChunk   = 128 << 10 // bytes in one message; JetStream has up to 8 MiB of them on the way
	maxBackupHead = 1 << 20
)

// ErrBackup is returned for a file that is no backup, or is damaged or incomplete.
var ErrBackup = errors.New("gateway: not a complete backup")

// Backup writes the streams to w, as gateway.Backup says.
func Backup(ctx context.Context, conn *nats.Conn, stream string, w io.Writer) error {
	if err := backup(ctx, conn, cmp.Or(stream, DefaultName), w); err != nil {
		return fmt.Errorf("gateway: backup: %w", err)
	}
	return nil
}

func backup(ctx context.Context, conn *nats.Conn, stream string, w io.Writer) error {
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	head, err := js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	l, err := layoutOf(stream, head.CachedInfo().Config.Metadata)
	if err != nil {
		return err
	}
	version := backupVersion
	if l.now() > 0 || l.Shards() > 1 {
		version = shardsVersion
	}
	sum := sha256.New()
	out := bufio.NewWriter(io.MultiWriter(w, sum))
	err = l.others(func(name string, _, _ int) error { return backupStream(ctx, conn, name, version, out) })
	if err == nil {
		err = backupStream(ctx, conn, stream, version, out)
	}
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		_, err = w.Write(sum.Sum(nil))
	}
	return err
}

// backupStream writes one stream.
func backupStream(ctx context.Context, conn *nats.Conn, stream string, version int, out *bufio.Writer) error {
	inbox := conn.NewInbox()
	chunks, err := conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer chunks.Unsubscribe()
	if err := chunks.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	var answer struct {
		Error  *apiError
		Config json.RawMessage
		State  json.RawMessage
	}
	request := map[string]any{"deliver_subject": inbox, "no_consumers": true, "chunk_size": backupChunk}
	if err := CallAPI(ctx, conn, "$JS.API.STREAM.SNAPSHOT."+stream, event.Encode(request), &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return fmt.Errorf("stream %s: %s", stream, answer.Error.Description)
	}
	out.Write(append(event.Encode(backupHead{version, answer.Config, answer.State}), '\n')) // an error is returned by Flush
	length := func(n int) {
		if version == shardsVersion {
			out.Write(binary.BigEndian.AppendUint32(nil, uint32(n)))
		}
	}
	for {
		next, cancel := context.WithTimeout(ctx, RequestTimeout)
		m, err := chunks.NextMsgWithContext(next)
		cancel()
		if err != nil {
			return err
		}
		if status := m.Header.Get("Status"); status != "" && status != "204" {
			return fmt.Errorf("%s %s", status, m.Header.Get("Description"))
		}
		length(len(m.Data))
		if len(m.Data) == 0 {
			return nil
		}
		if _, err := out.Write(m.Data); err != nil {
			return err
		}
		if m.Reply != "" { // JetStream sends more
			if err := m.Respond(nil); err != nil {
				return err
			}
		}
	}
}

// Close ends streams that are to be moved, as gateway.CloseStream says.
func Close(ctx context.Context, conn *nats.Conn, stream string) error {
	if err := closeAll(ctx, conn, cmp.Or(stream, DefaultName)); err != nil {
		return fmt.Errorf("gateway: close the stream: %w", err)
	}
	return nil
}

func closeAll(ctx context.Context, conn *nats.Conn, stream string) error {
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	head, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	l, err := layoutOf(stream, head.CachedInfo().Config.Metadata)
	if err != nil {
		return err
	}
	one := func(name string, _, _ int) error {
		return updateStream(ctx, js, name, func(info *jetstream.StreamInfo) {
			info.Config.Metadata[closedKey] = "true"
			info.Config.Subjects = []string{noSubject(name)}
		})
	}
	if err := l.others(one); err != nil {
		return err
	}
	return one(stream, 0, 0)
}

// ErrClosed is returned for streams that closeStream has ended.
var ErrClosed = errors.New("gateway: the stream was closed, to be moved")

// noSubject returns the subject of a stream that takes no event. Nothing is published to it.
func noSubject(stream string) string { return "push.none." + stream }

// Restore makes the stream c.Name, and those that belong to it, from a backup. endEra must follow. It fails with errBackup if
// the file is not one; other errors may be temporary.
func Restore(ctx context.Context, conn *nats.Conn, c Config) error {
	size, err := checkSum(c.Restore)
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(io.LimitReader(c.Restore, size), maxBackupHead)
	epoch := NewEpoch() // which the streams get in the end
	for last := false; !last; {
		if last, err = restoreStream(ctx, conn, c, epoch, in); err != nil {
			return err
		}
	}
	return nil
}

// restoreStream makes one stream of a backup. It reports whether that was the last one.
func restoreStream(ctx context.Context, conn *nats.Conn, c Config, epoch string, in *bufio.Reader) (last bool, err error) {
	line, err := in.ReadSlice('\n')
	var head backupHead
	config := map[string]any{}
	if err != nil || json.Unmarshal(line, &head) != nil || head.Backup != backupVersion && head.Backup != shardsVersion ||
		json.Unmarshal(head.Config, &config) != nil {
		return false, fmt.Errorf("%w: its first line is not that of a backup", ErrBackup)
	}
	name, _ := config["name"].(string)
	if last = name == c.Name; !last && (head.Backup != shardsVersion || !strings.HasPrefix(name, c.Name+"-")) {
		return false, fmt.Errorf("%w: it is of the stream %v, not %s", ErrBackup, config["name"], c.Name)
	}
	var from io.Reader = in
	if head.Backup == shardsVersion {
		from = &parts{in: in}
	}
	config["num_replicas"] = cmp.Or(c.Replicas, 1)
	// Until it has its new epoch, the stream takes no event. Its last sequence must not change
	// before that, and the state in the backup may be older than its events.
	config["subjects"] = []string{noSubject(name)}
	metadata, ok := config["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		config["metadata"] = metadata
	}
	metadata[restoringKey] = epoch
	var answer struct {
		Error   *apiError
		Deliver string `json:"deliver_subject"`
	}
	request := event.Encode(map[string]any{"config": config, "state": head.State})
	if err := CallAPI(ctx, conn, "$JS.API.STREAM.RESTORE."+name, request, &answer); err != nil {
		return false, err
	}
	switch e := answer.Error; {
	case e != nil && !last && e.ErrCode == streamExists:
		if err := isRestored(ctx, conn, name); err != nil {
			return false, err
		}
		_, err := io.Copy(io.Discard, from)
		return false, err
	case e != nil:
		return false, errors.New(e.Description)
	}
	chunk := make([]byte, backupChunk)
	for {
		n, err := io.ReadFull(from, chunk)
		if n > 0 {
			if err := sendChunk(ctx, conn, answer.Deliver, chunk[:n]); err != nil {
				return false, err
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return last, sendChunk(ctx, conn, answer.Deliver, nil)
		default:
			return false, err
		}
	}
}

// streamExists is JetStream's code for a stream that cannot be restored because there is one of the name.
const streamExists = 10130

// isRestored reports an error unless a stream was made by a restore that was interrupted later.
func isRestored(ctx context.Context, conn *nats.Conn, name string) error {
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	there, err := js.Stream(ctx, name)
	if err == nil && there.CachedInfo().Config.Metadata[restoringKey] == "" {
		err = fmt.Errorf("the stream %s exists already", name)
	}
	return err
}

// parts reads a stream that is in parts, up to its end.
type parts struct {
	in    *bufio.Reader
	left  uint32 // of the part
	ended bool
}

func (p *parts) Read(b []byte) (int, error) {
	if p.left == 0 && !p.ended {
		var length [4]byte
		if _, err := io.ReadFull(p.in, length[:]); err != nil {
			return 0, fmt.Errorf("%w: it ends within a stream", ErrBackup)
		}
		p.left = binary.BigEndian.Uint32(length[:])
		p.ended = p.left == 0
	}
	if p.ended {
		return 0, io.EOF
	}
	n, err := p.in.Read(b[:min(len(b), int(p.left))])
	p.left -= uint32(n)
	if err == io.EOF {
		err = fmt.Errorf("%w: it ends within a stream", ErrBackup)
	}
	return n, err
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
