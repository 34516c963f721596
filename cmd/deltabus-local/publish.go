package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltabus"
)

// messageJSON is a message as a JSON line has it: any of the columns of messages.
type messageJSON struct {
	MessageID     string            `json:"message_id"`
	Topic         string            `json:"topic"`
	Key           string            `json:"key,omitempty"`
	Source        string            `json:"source,omitempty"`
	Type          string            `json:"type,omitempty"`
	Subject       string            `json:"subject,omitempty"`
	ContentType   string            `json:"content_type,omitempty"`
	Payload       *string           `json:"payload,omitempty"`
	PayloadBytes  *string           `json:"payload_bytes,omitempty"` // base64
	Headers       map[string]string `json:"headers,omitempty"`
	CorrelationID string            `json:"correlation_id,omitempty"`
}

func (m messageJSON) message() (deltabus.Message, error) {
	out := deltabus.Message{
		ID: m.MessageID, Topic: m.Topic, Key: m.Key, Source: m.Source, Type: m.Type, Subject: m.Subject,
		ContentType: m.ContentType, Headers: m.Headers, CorrelationID: m.CorrelationID,
	}
	switch {
	case m.Payload != nil && m.PayloadBytes != nil:
		return out, errors.New("give payload or payload_bytes, not both")
	case m.Payload != nil:
		out.Payload = []byte(*m.Payload)
	case m.PayloadBytes != nil:
		data, err := base64.StdEncoding.DecodeString(*m.PayloadBytes)
		if err != nil {
			return out, fmt.Errorf("payload_bytes is no base64: %w", err)
		}
		out.Payload = data
		if out.ContentType == "" {
			out.ContentType = "application/octet-stream"
		}
	}
	return out, nil
}

// eventJSON is an event as a consumer prints it.
type eventJSON struct {
	messageJSON
	ProducerID   string    `json:"producer_id"`
	ProducerSeq  int64     `json:"producer_seq"`
	PublishedAt  time.Time `json:"published_at"`
	Version      int64     `json:"version"`
	Attempt      int       `json:"attempt,omitempty"`
	Replay       int       `json:"replay_number,omitempty"`
	DeadLetterID string    `json:"dead_letter_id,omitempty"`
}

func toEventJSON(e deltabus.Event) eventJSON {
	out := eventJSON{
		messageJSON: messageJSON{
			MessageID: e.ID, Topic: e.Topic, Key: e.Key, Source: e.Source, Type: e.Type, Subject: e.Subject,
			ContentType: e.ContentType, Headers: e.Headers, CorrelationID: e.CorrelationID,
		},
		ProducerID: e.ProducerID, ProducerSeq: e.ProducerSeq, PublishedAt: e.PublishedAt, Version: e.Version, Attempt: e.Attempt,
		Replay: e.Replay, DeadLetterID: e.DeadLetterID,
	}
	if e.IsText() {
		s := string(e.Payload)
		out.Payload = &s
	} else {
		s := base64.StdEncoding.EncodeToString(e.Payload)
		out.PayloadBytes = &s
	}
	return out
}

func (a *app) publishCommand() *cobra.Command {
	var topic, spool string
	c := &cobra.Command{
		Use:   "publish [PAYLOAD]",
		Short: "Publish an event, or one for each JSON line of stdin",
		Long: "Publish PAYLOAD to --topic. Without PAYLOAD each line of stdin is a JSON object with any of the columns of messages (topic,\n" +
			"payload, payload_bytes in base64, key, headers, …); its topic is its own or --topic. A receipt is printed for each event\n" +
			"once it is durable.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withBus(cmd.Context(), writing, func(b *deltabus.Bus) error { return a.publish(cmd.Context(), b, topic, spool, args) })
		},
	}
	c.Flags().StringVar(&topic, "topic", "", "topic of events that do not name their own")
	c.Flags().StringVar(&spool, "spool", "", "SQLite file that keeps events until they are durable, also over a kill (default: none)")
	return c
}

func (a *app) publish(ctx context.Context, b *deltabus.Bus, topic, spool string, args []string) (err error) {
	opts := []deltabus.PublisherOption{deltabus.WithSource("deltabus-local"), deltabus.WithBatches(50*time.Millisecond, 10_000, 16<<20)}
	if spool != "" {
		opts = append(opts, deltabus.WithSpool(spool))
	}
	p, err := b.Publisher(opts...)
	if err != nil && spool != "" && !isAny(err, deltabus.ErrSpoolInUse, deltabus.ErrSpoolExpired) {
		return advise(err, "give --spool a file in a directory that is there and that you may write")
	}
	if err != nil {
		return err
	}
	// The first signal ends the input: what was read is still published and has its receipt, unless that makes no progress. The second ends
	// the waiting.
	closing, progress, cancel := afterSignal(ctx, a.patience)
	defer cancel()
	defer func() {
		left := p.Close(closing)
		if errors.Is(left, deltabus.ErrUndelivered) && err == context.Cause(closing) {
			err = nil // says less
		}
		err = errors.Join(err, left)
		a.reportUndelivered(left)
	}()
	receipts := a.receipts(progress)
	defer func() { err = receipts.rows.end(err) }()
	if len(args) == 1 {
		if topic == "" {
			return usagef("--topic is required with PAYLOAD")
		}
		d, err := p.PublishAsync(closing, deltabus.Message{Topic: topic, Payload: []byte(args[0])})
		if err != nil {
			return err
		}
		if err := receipts.add(closing, topic, d); err != nil {
			return err
		}
		return receipts.end(closing)
	}
	lines := readLines(ctx, a.in)
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return receipts.end(closing)
		case <-receipts.due(): // also while the next line is not there yet: who writes it may wait for this one's receipt
			if err := receipts.next(closing); err != nil {
				return err
			}
		case l, ok := <-lines:
			if !ok {
				return receipts.end(closing)
			}
			if err := publishLine(closing, p, receipts, l, n, topic); err != nil {
				return errors.Join(receipts.end(closing), err)
			}
			n++
		}
	}
}

// publishLine publishes line n of the input.
func publishLine(ctx context.Context, p *deltabus.Publisher, receipts *receipts, l line, n int, topic string) error {
	if len(bytes.TrimSpace(l.text)) > 0 {
		m, err := parseLine(l.text, topic)
		if err != nil {
			return usagef("line %d: %w", n, err)
		}
		d, err := p.PublishAsync(ctx, m)
		if errors.Is(err, deltabus.ErrInvalidMessage) || errors.Is(err, deltabus.ErrTopic) {
			return usagef("line %d: %w", n, err)
		}
		if err != nil {
			return err
		}
		if err := receipts.add(ctx, m.Topic, d); err != nil {
			return err
		}
	}
	return l.err
}

// line is a line of the input; err is what ended the input behind it, if that was not its end.
type line struct {
	text []byte
	err  error
}

// readLines reads lines until the input or ctx ends. A read of stdin cannot be interrupted, so it is not waited for at a signal: the
// reader then ends with the process.
func readLines(ctx context.Context, r io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		defer close(lines)
		in := bufio.NewReaderSize(r, 1<<20)
		for {
			text, err := in.ReadBytes('\n')
			end := err != nil
			if errors.Is(err, io.EOF) {
				err = nil
			}
			select {
			case lines <- line{text, err}:
			case <-ctx.Done():
				return
			}
			if end {
				return
			}
		}
	}()
	return lines
}

// parseLine reads one line whole, or refuses it: what a JSON decoder would pass over or replace is an event that is not the one that was
// handed in.
func parseLine(line []byte, topic string) (deltabus.Message, error) {
	switch line = bytes.TrimSpace(line); {
	case !bytes.HasPrefix(line, []byte("{")):
		return deltabus.Message{}, errors.New("no JSON object with columns of messages")
	case !utf8.Valid(line), hasLoneSurrogate(line):
		return deltabus.Message{}, errors.New("no valid UTF-8: give such content as payload_bytes, in base64")
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	m := messageJSON{Topic: topic}
	if err := dec.Decode(&m); err != nil {
		return deltabus.Message{}, fmt.Errorf("no JSON object with columns of messages: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return deltabus.Message{}, errors.New("more than one JSON value: put each event on a line of its own")
	}
	if m.Topic == "" {
		return deltabus.Message{}, errors.New("no topic, neither in the line nor by --topic")
	}
	return m.message()
}

// hasLoneSurrogate finds a \\u escape that is half of a character.
func hasLoneSurrogate(line []byte) bool {
	escape := func(i int) rune { // the code of the escape at i, or -1
		if i+6 > len(line) || line[i] != '\\' || line[i+1] != 'u' {
			return -1
		}
		v, err := strconv.ParseUint(string(line[i+2:i+6]), 16, 16)
		if err != nil {
			return -1
		}
		return rune(v)
	}
	for i := 0; i < len(line); i++ {
		if line[i] != '\\' {
			continue
		}
		if r := escape(i); utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, escape(i+6)) == utf8.RuneError {
				return true
			}
			i += 10 // the other half
		}
		i++ // what is escaped
	}
	return false
}

// maxReported bounds how many events that did not make it are named.
const maxReported = 20

// reportUndelivered says on stderr which events are not known to be durable, and what there is of them.
func (a *app) reportUndelivered(err error) {
	var u *deltabus.UndeliveredError
	if !errors.As(err, &u) {
		return
	}
	for i, m := range u.Messages {
		if i == maxReported {
			fmt.Fprintf(a.err, "not durable: %d more, those without a receipt\n", len(u.Messages)-i)
			return
		}
		state := ""
		switch {
		case m.Spooled:
			state = "  (kept on the spool)"
		case m.Unclear:
			state = "  (may be in the table all the same)"
		}
		fmt.Fprintf(a.err, "not durable: %s  %s%s\n", m.Message.ID, m.Message.Topic, state)
	}
}

// receipts prints receipts in the order of the events, a bounded number of events behind the input.
type receipts struct {
	a        *app
	waiting  []waiting
	rows     *jsonRows
	progress func() // is told of each
}

type waiting struct {
	topic string
	d     *deltabus.Delivery
}

type receiptJSON struct {
	MessageID   string    `json:"message_id"`
	Topic       string    `json:"topic"`
	ProducerID  string    `json:"producer_id"`
	ProducerSeq int64     `json:"producer_seq"`
	PublishedAt time.Time `json:"published_at"`
	Path        string    `json:"path"`
}

func (a *app) receipts(progress func()) *receipts {
	return &receipts{a: a, rows: a.jsonRows(), progress: progress}
}

func (r *receipts) add(ctx context.Context, topic string, d *deltabus.Delivery) error {
	r.waiting = append(r.waiting, waiting{topic, d})
	for len(r.waiting) > 0 {
		select {
		case <-r.waiting[0].d.Done():
		default:
			if len(r.waiting) < 10_000 {
				return nil
			}
		}
		if err := r.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// due is done once the next receipt is there; nil, which never is, without one.
func (r *receipts) due() <-chan struct{} {
	if len(r.waiting) == 0 {
		return nil
	}
	return r.waiting[0].d.Done()
}

// next prints the next receipt.
func (r *receipts) next(ctx context.Context) error {
	w := r.waiting[0]
	got, err := w.d.Wait(ctx)
	if err != nil && w.d.Err() == nil {
		return err // its receipt may still come
	}
	r.waiting = r.waiting[1:]
	if err != nil {
		return err
	}
	r.progress()
	if r.a.output == "table" {
		_, err := fmt.Fprintf(r.a.out, "%s  %s  %d  %s\n", got.MessageID, w.topic, got.ProducerSeq, got.Path)
		return err
	}
	line, err := json.Marshal(receiptJSON{got.MessageID, w.topic, got.ProducerID, got.ProducerSeq, got.PublishedAt, string(got.Path)})
	if err != nil {
		return err
	}
	return r.rows.add(line)
}

func (r *receipts) end(ctx context.Context) error {
	for len(r.waiting) > 0 {
		if err := r.next(ctx); err != nil {
			return err
		}
	}
	return nil
}
