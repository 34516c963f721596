package deltabus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/deltabus/deltabus-local/deltalog"
)

// Publisher publishes messages to a bus: through Zerobus when an endpoint is configured, and when it is not, or it
// stays away, by a batch write to the messages table every few seconds; back to Zerobus by itself. What it reports as
// durable is committed. Messages of one publisher keep their order, in every topic, over every switch.
//
// Before messages that were handed over without an acknowledgement are sent again, the publisher looks up its own rows
// (producer_id and producer_seq) in the messages table, so that none appears twice. While the table cannot be
// read either, it waits. Safe for concurrent use; it must be closed.
type Publisher struct {
	id    string
	opts  publisherOptions
	clock func() time.Time
	log   *slog.Logger

	bus      string // the bus's name, for the spool
	table    journal
	endpoint streamOpener // nil: no Zerobus endpoint
	spool    *spool       // nil: none

	ctx    context.Context // ends when Close gives up
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the engine has ended
	wake   chan struct{} // capacity 1: the engine has something to do

	mu       sync.Mutex
	queue    []*entry // accepted, on the spool if there is one, not completed; by producer_seq
	sent     int      // queue[:sent] are handed to the current path
	spooling []*entry // accepted, not on the spool yet
	count    int      // of both, and their bytes
	bytes    int64
	nextSeq  int64
	lastAt   time.Time
	flushTo  int64 // a batch with a lower producer_seq is not to wait
	closing  bool
	broken   error         // the spool failed, or the table was dropped: nothing more is accepted
	gone     error         // the engine gave up; why
	lastErr  error         // what kept the engine last, for those that it gives up
	isolate  int           // so many messages at the head are sent one by one
	refused  *entry        // refused by the endpoint, and to be failed unless the table has it
	refusal  error         // why
	changed  chan struct{} // closed and replaced when room was made
	path     Path

	// The engine's own:
	marks   []mark        // where rows of which producer_seq can be, oldest first
	contend bool          // the next batch holds messages that a Zerobus server may still be writing
	probing time.Duration // the pause before the next probe
	lostAt  time.Time     // since when messages were handed over and none was acknowledged; zero: all is well

	spoolTurn chan struct{} // capacity 1: the turn to write the spool
}

// Path is the way that messages take.
type Path string

// The paths.
const (
	// PathZerobus: through the Zerobus endpoint.
	PathZerobus Path = "zerobus"
	// PathBatch: by batch writes to the table.
	PathBatch Path = "batch"
)

// Receipt says what became of a message that is durable.
type Receipt struct {
	MessageID   string
	ProducerID  string
	ProducerSeq int64
	PublishedAt time.Time
	// Path is the way it was found to be durable.
	Path Path
}

// Delivery is a message on its way. Safe for concurrent use.
type Delivery struct {
	receipt Receipt
	done    chan struct{}
	err     error
}

// Done is closed when the message is durable, or has failed.
func (d *Delivery) Done() <-chan struct{} { return d.done }

// Err is nil while the message is on its way and once it is durable, else why it failed.
func (d *Delivery) Err() error {
	select {
	case <-d.done:
		return d.err
	default:
		return nil
	}
}

// Receipt is who published the message, as its how-manieth; it means "durable" once Done is closed and Err is nil.
func (d *Delivery) Receipt() Receipt {
	select {
	case <-d.done:
		return d.receipt
	default: // Path is not known yet
		return Receipt{MessageID: d.receipt.MessageID, ProducerID: d.receipt.ProducerID, ProducerSeq: d.receipt.ProducerSeq, PublishedAt: d.receipt.PublishedAt}
	}
}

// Wait returns the receipt when the message is durable, else why it failed, or ctx's error.
func (d *Delivery) Wait(ctx context.Context) (Receipt, error) {
	select {
	case <-d.done:
		return d.receipt, d.err
	default: // what is done counts, also when ctx has ended
	}
	select {
	case <-d.done:
		return d.receipt, d.err
	case <-ctx.Done():
		return Receipt{}, context.Cause(ctx)
	}
}

// Publisher makes a publisher. It begins to work at once, and must be closed.
func (b *Bus) Publisher(options ...PublisherOption) (*Publisher, error) {
	cfg := publisherConfig{
		bus: b.Schema(), clock: b.cfg.Clock, log: b.cfg.Logger, options: defaultPublisherOptions(),
		retention: b.messages.Cached().Retention().Transactions,
	}
	for _, o := range options {
		if err := o(&cfg.options); err != nil {
			return nil, err
		}
	}
	name := b.Schema() + "." + MessagesTable
	cfg.table = &tableJournal{name: name, id: b.messages.Cached().Metadata().ID, table: b.messages, clock: b.cfg.Clock, open: func(ctx context.Context) (*deltalog.Table, error) {
		return b.cfg.Workspace.Table(ctx, name)
	}}
	if b.cfg.Zerobus != nil {
		var err error
		if cfg.endpoint, err = b.cfg.Zerobus.opener(name); err != nil {
			return nil, err
		}
	}
	return newPublisher(cfg)
}

// publisherConfig is what a bus gives to its publishers.
type publisherConfig struct {
	bus      string
	table    journal
	endpoint streamOpener
	clock    func() time.Time
	log      *slog.Logger
	options  publisherOptions
	// retention is how long the table remembers a producer's last batch; 0: for ever.
	retention time.Duration
}

func newPublisher(cfg publisherConfig) (*Publisher, error) {
	p := &Publisher{
		bus:  cfg.bus,
		opts: cfg.options, clock: cfg.clock, log: cfg.log, table: cfg.table, endpoint: cfg.endpoint,
		done: make(chan struct{}), wake: make(chan struct{}, 1), changed: make(chan struct{}),
		spoolTurn: make(chan struct{}, 1), path: PathBatch,
	}
	if p.clock == nil {
		p.clock = time.Now
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.endpoint != nil {
		p.path = PathZerobus
	}
	if err := p.openSpool(cfg.retention); err != nil {
		return nil, err
	}
	if p.id == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("publisher: make a producer id: %w", err)
		}
		p.id = id.String()
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	go p.run(len(p.queue) > 0)
	return p, nil
}

// ProducerID is the producer_id of this publisher's messages: new for each publisher, unless a spool keeps it.
func (p *Publisher) ProducerID() string { return p.id }

// Path is the way that messages take at the moment.
func (p *Publisher) Path() Path {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.path
}

// Buffered is the number of messages that are accepted and not yet durable.
func (p *Publisher) Buffered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Publish publishes messages in order and returns when all are durable, with their receipts. Nothing is accepted if
// one of them is invalid (ErrInvalidMessage), or if there is no room for all of them and the publisher was made with
// FailWhenFull (ErrBufferFull). When ctx ends first, or messages fail, the error is an *UndeliveredError that lists
// them, and their receipts are zero; those that were accepted are still being published.
func (p *Publisher) Publish(ctx context.Context, msgs ...Message) ([]Receipt, error) {
	entries, err := p.accept(ctx, msgs)
	if err != nil && len(entries) == 0 {
		return nil, err
	}
	receipts := make([]Receipt, len(msgs))
	var failed []Undelivered
	for i, e := range entries {
		r, err := e.Wait(ctx)
		if err != nil {
			failed = append(failed, p.undelivered(e, err))
			continue
		}
		receipts[i] = r
	}
	for _, m := range msgs[len(entries):] { // not accepted: ctx or the publisher ended while waiting for room
		failed = append(failed, Undelivered{Message: m, Err: err})
	}
	if len(failed) > 0 {
		return receipts, &UndeliveredError{Messages: failed}
	}
	return receipts, nil
}

// PublishAsync accepts one message and returns; the delivery tells when it is durable. It waits only for room in the
// buffer (until ctx ends), or answers ErrBufferFull, and for the spool if there is one. An error means that the
// message was not accepted.
func (p *Publisher) PublishAsync(ctx context.Context, msg Message) (*Delivery, error) {
	entries, err := p.accept(ctx, []Message{msg})
	if err != nil {
		return nil, err
	}
	return &entries[0].Delivery, nil
}

// Flush writes everything accepted so far without waiting for the batch interval, and returns when it is durable.
// Messages that fail meanwhile, or that are not durable when ctx ends, are listed by an *UndeliveredError.
func (p *Publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	p.flushTo = p.nextSeq
	entries := slices.Concat(p.queue, p.spooling)
	p.mu.Unlock()
	p.wakeUp()
	var failed []Undelivered
	for _, e := range entries {
		if _, err := e.Wait(ctx); err != nil {
			failed = append(failed, p.undelivered(e, err))
		}
	}
	if len(failed) > 0 {
		return &UndeliveredError{Messages: failed}
	}
	return nil
}

// Close accepts nothing more, publishes what is there, and ends. When ctx ends first, it gives up: what is not known to
// be durable is listed by an *UndeliveredError (and stays on the spool, if there is one). A second Close waits
// for the first.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closing = true
	entries := slices.Concat(p.queue, p.spooling)
	p.notify()
	p.mu.Unlock()
	p.wakeUp()
	select {
	case <-p.done:
	case <-ctx.Done():
		p.cancel(fmt.Errorf("publisher closed before everything was durable: %w", context.Cause(ctx)))
		<-p.done
	}
	var failed []Undelivered
	for _, e := range entries {
		if err := e.Err(); err != nil {
			failed = append(failed, p.undelivered(e, err))
		}
	}
	err := p.closeSpool()
	if len(failed) > 0 {
		return errors.Join(&UndeliveredError{Messages: failed}, err)
	}
	return err
}

func (p *Publisher) undelivered(e *entry, err error) Undelivered {
	u := Undelivered{Message: e.msg, ProducerSeq: e.receipt.ProducerSeq, Err: err}
	var refused *RefusedError
	if !errors.As(err, &refused) {
		p.mu.Lock()
		u.Unclear = e.handed && !errors.Is(err, ErrTableDropped)
		p.mu.Unlock()
		u.Spooled = p.spool != nil && !errors.Is(err, ErrSpoolFailed)
	}
	return u
}

func (p *Publisher) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// notify tells those who wait for room; p.mu is held.
func (p *Publisher) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}
