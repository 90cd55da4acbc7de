// Package servers runs the two servers that are compared: a real etcd and Sternpost, each with a data directory of its own.
package servers

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Kind says which server it is.
type Kind string

const (
	Etcd      Kind = "etcd"
	Sternpost Kind = "sternpost"
)

// startLimit bounds the time from the start of a process to its first answer; stopLimit that from SIGTERM to its end.
const (
	startLimit = 60 * time.Second
	stopLimit  = 20 * time.Second
)

// Server is one process and what is needed to start it again on the same directory and port.
type Server struct {
	Kind     Kind
	Endpoint string // host:port, or unix:PATH
	DataDir  string
	LogPath  string

	binary string
	tls    *tls.Config // of its clients; nil is in the clear
	args   []string
	cmd    *exec.Cmd
	ended  chan error
}

// Binary is the program to run: the variable ETCD_BINARY or STERNPOST_BINARY, which `run` sets.
func Binary(kind Kind) (string, error) {
	name := strings.ToUpper(string(kind)) + "_BINARY"
	path := os.Getenv(name)
	if path == "" {
		return "", fmt.Errorf("%s is not set: start this through tests/etcd/run", name)
	}
	return path, nil
}

// Scratch makes a directory for data. Only answers are compared, so memory will do where there is some.
func Scratch() (string, error) {
	parent := ""
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		parent = "/dev/shm"
	}
	dir, err := os.MkdirTemp(parent, "judge-")
	if err != nil && parent != "" {
		dir, err = os.MkdirTemp("", "judge-")
	}
	return dir, err
}

// Start makes a data directory below dir and starts the server, with flags that both kinds understand.
func Start(ctx context.Context, kind Kind, dir string, flags ...string) (*Server, error) {
	binary, err := Binary(kind)
	if err != nil {
		return nil, err
	}
	return StartBinary(ctx, kind, binary, dir, flags...)
}

// StartBinary is Start with a program of a version of its own.
func StartBinary(ctx context.Context, kind Kind, binary, dir string, flags ...string) (*Server, error) {
	client, err := FreePort()
	if err != nil {
		return nil, err
	}
	return StartURL(ctx, kind, binary, dir, "http://"+client, nil, flags...)
}

// StartURL is StartBinary at an address of the caller's: http or https before host:port, unix or unixs before a path. Clients
// use the configuration where the address asks for one; the flags say what the server has.
func StartURL(
	ctx context.Context, kind Kind, binary, dir, url string, client *tls.Config, flags ...string,
) (*Server, error) {
	scheme, address, _ := strings.Cut(url, "://")
	if strings.HasPrefix(scheme, "unix") {
		address = "unix:" + address
	}
	s := &Server{
		Kind:     kind,
		Endpoint: address,
		DataDir:  filepath.Join(dir, string(kind)),
		LogPath:  filepath.Join(dir, string(kind)+".log"),
		binary:   binary,
		tls:      client,
	}
	s.args = []string{"--data-dir", s.DataDir, "--listen-client-urls", url, "--advertise-client-urls", url}
	if kind == Etcd {
		peer, err := FreePort()
		if err != nil {
			return nil, err
		}
		url := "http://" + peer
		s.args = append(s.args, "--listen-peer-urls", url, "--initial-advertise-peer-urls", url,
			"--initial-cluster", "default="+url, "--log-level", "error")
	}
	s.args = append(s.args, flags...)
	return s, s.Run(ctx)
}

// Run starts the process on the directory that it has, and returns once it answers.
func (s *Server) Run(ctx context.Context) error {
	log, err := os.OpenFile(s.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.binary, s.args...)
	cmd.Stdout, cmd.Stderr = log, log
	// A killed judge leaves no server behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", s.Kind, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s.cmd, s.ended = cmd, ended
	return s.awaitAnswer(ctx)
}

func (s *Server) awaitAnswer(ctx context.Context) error {
	conn, err := s.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		// A linearizable read: etcd answers Status before it has a leader.
		_, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte{0}}, grpc.WaitForReady(true))
		if err == nil {
			return nil
		}
		select {
		case end := <-s.ended:
			s.ended <- end
			return fmt.Errorf("%s ended during its start: %v\n%s", s.Kind, end, s.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("%s did not answer within %v: %v\n%s", s.Kind, startLimit, err, s.LogTail())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Dial opens a connection with no limit on what may be received.
func (s *Server) Dial(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	security := insecure.NewCredentials()
	if s.tls != nil {
		security = credentials.NewTLS(s.tls)
	}
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<31-1), grpc.MaxCallSendMsgSize(1<<31-1)),
	}, options...)
	return grpc.NewClient(s.Endpoint, options...)
}

// Alive is false once the process has ended.
func (s *Server) Alive() bool {
	select {
	case end := <-s.ended:
		s.ended <- end
		return false
	default:
		return s.cmd != nil
	}
}

// Pid is that of the process which runs now.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Kill ends the process with SIGKILL and returns when it is gone.
func (s *Server) Kill() error {
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	end := <-s.ended
	s.ended <- end
	return nil
}

// Stop ends the process in order, with SIGTERM, and fails if it has to be killed.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case end := <-s.ended:
		s.ended <- end
		return nil
	case <-time.After(stopLimit):
		return fmt.Errorf("%s did not end within %v of SIGTERM: %w", s.Kind, stopLimit, s.Kill())
	}
}

// LogTail is the end of what the process wrote.
func (s *Server) LogTail() string {
	const most = 4096
	text, err := os.ReadFile(s.LogPath)
	if err != nil {
		return err.Error()
	}
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return string(text)
}

// given are the ports that this process has handed out: a server that is being restarted does not listen on its own.
var given sync.Map

// FreePort draws a port below those that the system gives to connections, which would take one during a restart.
func FreePort() (string, error) {
	const lowest, count, tries = 12_000, 20_000, 100
	var last error
	for range tries {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(count)))
		if _, taken := given.LoadOrStore(address, true); taken {
			continue
		}
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return address, listener.Close()
		}
		last = err
	}
	return "", fmt.Errorf("no free port: %w", last)
}
