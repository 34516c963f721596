package zerobus

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

// run holds one session after the other until the stream ends.
func (s *Stream) run(sess *session) {
	defer close(s.done)
	defer s.cancel(nil)
	failures := 0 // in a row, with no acknowledgement between
	for {
		var err *Error
		if sess != nil {
			opened := time.Now()
			err = s.hold(sess)
			sess.close()
			if err == nil {
				s.end(ErrClosed)
				return
			}
			// An idle stream that the server rotates now and then has not failed either.
			if s.acked || s.idle() && time.Since(opened) > s.opts.RecoveryBackoff {
				failures = 0
			}
		} else if sess, err = s.reopen(); err == nil {
			continue
		}
		sess = nil
		if s.life.Err() != nil || s.opts.NoRecovery || !err.Closing && !err.Retryable() {
			s.end(err)
			return
		}
		if !err.Closing {
			failures++
		}
		if failures > 1+s.opts.RecoveryRetries {
			s.end(err)
			return
		}
		if s.finished() {
			s.end(ErrClosed)
			return
		}
		if failures > 1 { // the first attempt after a loss is at once
			if wait(s.life, s.opts.RecoveryBackoff) != nil {
				s.end(asError("stream", context.Cause(s.life)))
				return
			}
		}
	}
}

func (s *Stream) reopen() (*session, *Error) {
	sess, err := s.dialer.open(s.life, s.life)
	if err != nil {
		return nil, asError("open", err)
	}
	return sess, nil
}

func (s *Stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.notify()
}

func (s *Stream) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) == 0
}

// finished reports whether Close was called and nothing is left to send.
func (s *Stream) finished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing && len(s.queue) == 0
}

// hold sends and receives on one session until it ends. nil: Close was called and everything is acknowledged.
func (s *Stream) hold(sess *session) *Error {
	s.mu.Lock()
	s.wireBase, s.sent, s.acked, s.paused, s.pauseEnd = s.base, 0, false, false, false
	s.lack = time.AfterFunc(s.opts.LackOfAckTimeout, func() {
		sess.cancel(&Error{Op: "stream", Code: codes.DeadlineExceeded, Message: fmt.Sprintf("no acknowledgement for %s", s.opts.LackOfAckTimeout)})
	})
	s.lack.Stop() // armed by the first record in flight
	lack := s.lack
	s.mu.Unlock()
	defer lack.Stop()

	ended := make(chan *Error, 1)
	go func() { ended <- s.receive(sess) }()
	for {
		it, wire, state := s.next()
		switch state {
		case stateSend:
			if err := sess.sendItem(it, s.dialer.cfg.RecordType, wire); err != nil {
				if err != io.EOF { // at EOF the receiver has the reason
					sess.cancel(asError("stream", err))
				}
				return <-ended
			}
		case stateIdle:
			select {
			case <-s.wake:
			case err := <-ended:
				return err
			}
		default:
			return s.finish(sess, state, ended)
		}
	}
}

// finish half-closes a session and reads late acknowledgements for a moment.
func (s *Stream) finish(sess *session, state sendState, ended <-chan *Error) *Error {
	_ = sess.rpc.CloseSend() // it never fails; the receiver sees whatever is wrong
	timer := time.AfterFunc(drainTime, func() {
		sess.cancel(&Error{Op: "stream", Code: codes.DeadlineExceeded, Message: "the server did not end the half-closed stream"})
	})
	defer timer.Stop()
	err := <-ended
	if state == stateClose {
		return nil // everything is durable: how the server ends does not matter
	}
	if err.Retryable() {
		err.Closing = true
		err.Message = "the server announced the end of the stream: " + err.Message
	}
	return err
}

type sendState int

const (
	stateIdle  sendState = iota // nothing to do
	stateSend                   // send the item
	statePause                  // end this session, open another
	stateClose                  // end this session, and the stream
)

// next says what the sender does next.
func (s *Stream) next() (*item, int64, sendState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing && len(s.queue) == 0:
		return nil, 0, stateClose
	case s.paused && (s.sent == 0 || s.pauseEnd):
		return nil, 0, statePause
	case s.paused || s.sent == len(s.queue):
		return nil, 0, stateIdle
	}
	it := s.queue[s.sent] // a copy: the queue moves on while it is being sent
	wire := s.base + int64(s.sent) - s.wireBase
	s.sent++ // before it is sent, so that no acknowledgement overtakes the count
	if s.sent == 1 {
		s.lack.Reset(s.opts.LackOfAckTimeout)
	}
	return &it, wire, stateSend
}

// receive reads the session to its end and says why it ended.
func (s *Stream) receive(sess *session) *Error {
	for {
		resp, err := sess.rpc.Recv()
		if err == io.EOF {
			return &Error{Op: "stream", Code: codes.OK, Message: "the server ended the stream"}
		}
		if err != nil {
			return sess.explain("stream", err)
		}
		switch p := resp.Payload.(type) {
		case *zerobuspb.EphemeralStreamResponse_IngestRecordResponse:
			acked, err := s.ack(p.IngestRecordResponse.DurabilityAckUpToOffset)
			if err != nil {
				sess.cancel(err)
				return err
			}
			if acked >= 0 && s.dialer.cfg.OnAck != nil {
				s.dialer.cfg.OnAck(acked)
			}
		case *zerobuspb.EphemeralStreamResponse_CloseStreamSignal:
			timer := s.pause(p.CloseStreamSignal)
			if timer != nil {
				defer timer.Stop()
			}
		default:
			err := protocolError("unexpected answer %T", resp.Payload)
			sess.cancel(err)
			return err
		}
	}
}

// ack takes a cumulative acknowledgement: it may repeat the last one, never go below it, never beyond what was sent.
// It returns the new Acked, or -1 if nothing is new.
func (s *Stream) ack(upTo *int64) (acked int64, err *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if upTo == nil {
		return -1, protocolError("acknowledgement without an offset")
	}
	last := s.base - s.wireBase - 1
	if *upTo < last || *upTo > last+int64(s.sent) || *upTo < 0 {
		return -1, protocolError("invalid durability ACK offset %d; expected %d..=%d", *upTo, last, last+int64(s.sent))
	}
	n := int(*upTo - last)
	if n == 0 {
		return -1, nil
	}
	for i := range s.queue[:n] {
		s.bytes -= s.queue[i].bytes
		s.records -= len(s.queue[i].records)
		s.queue[i] = item{}
	}
	s.queue = s.queue[n:]
	s.base += int64(n)
	s.sent -= n
	s.acked = true
	if s.sent > 0 {
		s.lack.Reset(s.opts.LackOfAckTimeout)
	} else {
		s.lack.Stop()
	}
	if s.paused || s.closing {
		s.wakeUp()
	}
	s.notify()
	return s.base - 1, nil
}

// pause stops sending, and ends the wait for acknowledgements after the announced time.
func (s *Stream) pause(sig *zerobuspb.CloseStreamSignal) *time.Timer {
	d := sig.GetDuration().AsDuration()
	if s.opts.PausedMaxWait > 0 {
		d = min(d, s.opts.PausedMaxWait)
	}
	over := func() {
		s.mu.Lock()
		s.pauseEnd = true
		s.mu.Unlock()
		s.wakeUp()
	}
	s.mu.Lock()
	s.paused = true
	s.mu.Unlock()
	if d <= 0 {
		over()
		return nil
	}
	s.wakeUp()
	return time.AfterFunc(d, over)
}
