package emulator

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"
)

// preface begins every HTTP/2 connection without TLS.
const preface = "PRI * HTTP/2.0"

// sniffTimeout is how long a connection may say nothing before it is closed.
const sniffTimeout = 30 * time.Second

// splitListener hands the connections of one port to gRPC or to HTTP/1.1, by their first bytes (docs/decisions/0002).
type splitListener struct {
	listeners   []net.Listener // none: only dial makes connections
	grpc, plain *chanListener
	log         *slog.Logger
	done        chan struct{}
	work        sync.WaitGroup
	mu          sync.Mutex
	closed      bool
	sniffing    map[net.Conn]bool
}

// listenPlain opens addr; for 127.0.0.1 the same port of ::1 too, since "localhost" may be either. No addr is no port.
func listenPlain(addr string, log *slog.Logger) (*splitListener, error) {
	s := &splitListener{log: log, done: make(chan struct{}), sniffing: map[net.Conn]bool{}}
	if addr != "" {
		var err error
		if s.listeners, err = listenLoopback(addr, log); err != nil {
			return nil, fmt.Errorf("%w: choose another port with --listen, or port 0 for a free one", err)
		}
	}
	s.grpc, s.plain = newChanListener(s.Addr(), s.done), newChanListener(s.Addr(), s.done)
	for _, l := range s.listeners {
		s.work.Go(func() { s.accept(l) })
	}
	return s, nil
}

// listenLoopback listens on addr, and for 127.0.0.1 on the same port of ::1 where there is one. Port 0 takes one that is free on both.
func listenLoopback(addr string, log *slog.Logger) ([]net.Listener, error) {
	for attempt := 0; ; attempt++ {
		first, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, err
		}
		a, ok := first.Addr().(*net.TCPAddr)
		if !ok || !a.IP.Equal(net.IPv4(127, 0, 0, 1)) {
			return []net.Listener{first}, nil
		}
		second, err := net.Listen("tcp", fmt.Sprintf("[::1]:%d", a.Port))
		if err == nil {
			return []net.Listener{first, second}, nil
		}
		probe, none := net.Listen("tcp", "[::1]:0")
		if none != nil {
			log.Debug("no ::1 on this machine", "error", none)
			return []net.Listener{first}, nil
		}
		if err := probe.Close(); err != nil {
			log.Debug("close probe", "error", err)
		}
		if _, port, e := net.SplitHostPort(addr); e == nil && port == "0" && attempt < 20 {
			if err := first.Close(); err != nil {
				return nil, err
			}
			continue
		}
		log.Warn("another program has this port on ::1: clients that take localhost for ::1 reach that one; give them 127.0.0.1", "port", a.Port, "error", err)
		return []net.Listener{first}, nil
	}
}

// Addr is the first port's address.
func (s *splitListener) Addr() net.Addr {
	if len(s.listeners) == 0 {
		return pipeAddr{}
	}
	return s.listeners[0].Addr()
}

// address is the host and port for clients.
func (s *splitListener) address() string { return reachable(s.Addr()) }

// pipeAddr is the address of a listener without a port. The top-level domain invalid is nobody's: a client that does not use dial
// fails, rather than reach somebody else.
type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "deltabus.invalid" }

// dial makes a connection within the process.
func (s *splitListener) dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, server := net.Pipe()
	if !s.enter(server) {
		return nil, errors.Join(fmt.Errorf("dial emulator: %w", net.ErrClosed), client.Close(), server.Close())
	}
	return client, nil
}

// enter starts sniffing c, unless the end has come.
func (s *splitListener) enter(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.sniffing[c] = true
	s.work.Go(func() { s.sniff(c) })
	return true
}

// Close closes the ports and what has said nothing yet.
func (s *splitListener) Close() error {
	s.mu.Lock()
	var errs []error
	if !s.closed {
		s.closed = true
		close(s.done)
		for _, l := range s.listeners {
			errs = append(errs, ignoreClosed(l.Close()))
		}
		for c := range s.sniffing {
			_ = c.Close() // it had nothing to lose
		}
	}
	s.mu.Unlock()
	s.work.Wait()
	return errors.Join(errs...)
}

func (s *splitListener) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, and the like: it passes
			s.log.Warn("accept failed", "error", err)
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-s.done:
				return
			}
		}
		if !s.enter(c) {
			_ = c.Close() // it came too late
		}
	}
}

// sniff waits for the first bytes of c, without holding up others.
func (s *splitListener) sniff(c net.Conn) {
	kind, conn, err := s.classify(c)
	s.mu.Lock()
	delete(s.sniffing, c)
	s.mu.Unlock()
	if err == nil && kind.offer(conn) {
		return
	}
	_ = c.Close() // a client that went away, or one that came too late
}

func (s *splitListener) classify(c net.Conn) (*chanListener, net.Conn, error) {
	if err := c.SetReadDeadline(time.Now().Add(sniffTimeout)); err != nil {
		return nil, nil, err
	}
	r := bufio.NewReaderSize(c, 64)
	start, err := r.Peek(1)
	if err != nil {
		return nil, nil, err
	}
	if start[0] == 0x16 {
		s.log.Warn("a client speaks TLS to the plain port: give it http:// with the address, or use the TLS port (--tls-listen)", "client", c.RemoteAddr().String())
		return nil, nil, errors.New("tls on the plain port")
	}
	kind := s.plain
	if start[0] == preface[0] { // POST, PUT and PATCH begin so too
		if start, err = r.Peek(len(preface)); err == nil && string(start) == preface {
			kind = s.grpc
		} else if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, err
		}
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	return kind, &peekedConn{c, r}, nil
}

// peekedConn gives what was peeked at before the rest.
type peekedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *peekedConn) Read(p []byte) (int, error) {
	if c.r != nil {
		if c.r.Buffered() > 0 {
			return c.r.Read(p)
		}
		c.r = nil
	}
	return c.Conn.Read(p)
}

// chanListener is a listener whose connections somebody else accepts.
type chanListener struct {
	addr  net.Addr
	conns chan net.Conn
	owner <-chan struct{}
	done  chan struct{}
	once  sync.Once
}

func newChanListener(addr net.Addr, owner <-chan struct{}) *chanListener {
	return &chanListener{addr: addr, conns: make(chan net.Conn), owner: owner, done: make(chan struct{})}
}

func (l *chanListener) offer(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.done:
	case <-l.owner:
	}
	return false
}

func (l *chanListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
	case <-l.owner:
	}
	return nil, net.ErrClosed
}

func (l *chanListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *chanListener) Addr() net.Addr { return l.addr }

// listenTLS opens the TLS port. ALPN decides between h2 and http/1.1; net/http serves both, and gRPC within it.
func listenTLS(addr string, cert tls.Certificate) (net.Listener, error) {
	l, err := tls.Listen("tcp", addr, &tls.Config{
		Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: choose another port with --tls-listen, or port 0 for a free one", err)
	}
	return l, nil
}

// reachable is an address for clients on this machine: who listens on every interface is reached on 127.0.0.1.
func reachable(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); ok && t.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(t.Port))
	}
	return a.String()
}
