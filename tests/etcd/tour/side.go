// This file runs one step against one server and takes down what it wrote.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"sternpost/tests/etcd/servers"
)

// stepLimit bounds one command.
const stepLimit = 10 * time.Second

// side is one server with what belongs to it.
type side struct {
	kind   servers.Kind
	server *servers.Server
	second *servers.Server // where make-mirror writes to
	dir    string
	names  names
	leases []string // as granted, for {lease1}, ...
}

// result is what a step gave, after `normal`.
type result struct {
	stdout, stderr string
	exit           int
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", r.exit, r.stdout, r.stderr)
}

func newSide(ctx context.Context, kind servers.Kind, dir string) (*side, error) {
	s := &side{kind: kind, dir: dir}
	for _, server := range []struct {
		at   **servers.Server
		name string
	}{{&s.server, "first"}, {&s.second, "second"}} {
		place := dir + "/" + server.name + "-" + string(kind)
		if err := os.MkdirAll(place, 0o700); err != nil {
			return nil, err
		}
		started, err := servers.Start(ctx, kind, place)
		if err != nil {
			return nil, err
		}
		*server.at = started
		s.names.texts = append(s.names.texts, [2]string{started.Endpoint, "{" + server.name + "}"})
	}
	s.names.texts = append(s.names.texts, [2]string{dir + "/" + string(kind), "{dir}"})
	conn, err := s.server.Dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	status, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return nil, err
	}
	s.names.name(status.Header.ClusterId)
	s.names.name(status.Header.MemberId)
	return s, nil
}

func (s *side) stop() {
	for _, server := range []*servers.Server{s.server, s.second} {
		_ = server.Kill()
	}
}

// split splits at blanks outside single quotes.
func split(line string) []string {
	var words []string
	var word strings.Builder
	quoted, begun := false, false
	for _, c := range line {
		switch {
		case c == '\'':
			quoted, begun = !quoted, true
		case c == ' ' && !quoted:
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}

// output is written by the command and read meanwhile.
type output struct {
	mutex sync.Mutex
	bytes bytes.Buffer
	grown chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	select {
	case o.grown <- struct{}{}:
	default:
	}
	return o.bytes.Write(p)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.bytes.String()
}

var granted = regexp.MustCompile(`lease ([0-9a-f]+) granted|"ID" ?: ?(\d+)|"ID":(\d+)`)

// run runs one step in one format. An error means that the judge or the server failed, not that the outputs differ.
func (s *side) run(ctx context.Context, st step, format string) (result, error) {
	line := st.line
	for i, lease := range s.leases {
		line = strings.ReplaceAll(line, fmt.Sprintf("{lease%d}", i+1), lease)
	}
	line = strings.NewReplacer("{second}", s.second.Endpoint, "{dir}", s.dir+"/"+string(s.kind)).Replace(line)
	if strings.Contains(line, "{lease") {
		return result{}, fmt.Errorf("%s: %q: no lease was granted", s.kind, st.line)
	}
	words := split(line)
	if format == "table" && strings.HasPrefix(line, "lease grant ") {
		// A grant has no table, and is refused before it is sent; later steps need the lease.
		format = "simple"
	}
	flags := []string{"--endpoints=" + s.server.Endpoint}
	if format != "simple" {
		flags = append(flags, "--write-out="+format)
	}
	if strings.Contains(line, "--endpoints=") {
		flags = flags[1:]
	}
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	// Flags come right after the command's name: what follows "--" is not read as flags.
	cmd := exec.CommandContext(ctx, os.Getenv("ETCDCTL_BINARY"), append(append(words[:1:1], flags...), words[1:]...)...)
	if i := subcommand(words); i > 0 {
		cmd.Args = append([]string{cmd.Args[0]}, append(append(words[:i+1:i+1], flags...), words[i+1:]...)...)
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, stderr := &output{grown: make(chan struct{}, 1)}, &output{grown: make(chan struct{}, 1)}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return result{}, err
	}
	if err := os.MkdirAll(s.dir+"/"+string(s.kind), 0o700); err != nil {
		return result{}, err
	}
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	// A command that ended already does not take its input.
	_, _ = io.WriteString(stdin, st.stdin)
	ended := make(chan error, 1)
	if st.until == "" && st.mirrored == "" {
		_ = stdin.Close()
	}
	go func() { ended <- cmd.Wait() }()
	end, cut, err := s.await(ctx, st, cmd, stdout, ended)
	if ctx.Err() != nil {
		return result{}, fmt.Errorf("%s: %q did not end within %v:\n%s%s", s.kind, st.line, stepLimit, stdout, stderr)
	}
	if err != nil {
		return result{}, err
	}
	var exit *exec.ExitError
	if end != nil && !errors.As(end, &exit) {
		return result{}, end
	}
	if cut >= 0 && !st.exits {
		return result{stdout: s.names.normal(stdout.String()[:cut], format), exit: -1}, nil
	}
	return s.taken(words, format, stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()), nil
}

// await returns how the command ended and, if it was ended by `until`, where the output is cut.
func (s *side) await(ctx context.Context, st step, cmd *exec.Cmd, stdout *output, ended chan error) (error, int, error) {
	if st.mirrored != "" {
		if err := s.awaitMirrored(ctx, st.mirrored); err != nil {
			return nil, -1, err
		}
		return s.interrupt(cmd, ended), -1, nil
	}
	for st.until != "" {
		shown := stdout.String()
		for _, text := range []string{st.until, base64.StdEncoding.EncodeToString([]byte(st.until))} {
			if at := strings.Index(shown, text); at >= 0 {
				return s.interrupt(cmd, ended), at + len(text), nil
			}
		}
		select {
		case <-stdout.grown:
		case end := <-ended:
			return end, -1, nil
		}
	}
	return <-ended, -1, nil
}

func (s *side) interrupt(cmd *exec.Cmd, ended chan error) error {
	_ = cmd.Process.Signal(syscall.SIGINT)
	return <-ended
}

// awaitMirrored returns once the second server has, or had, the key.
func (s *side) awaitMirrored(ctx context.Context, key string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.second.Endpoint}})
	if err != nil {
		return err
	}
	defer client.Close()
	seen := <-client.Watch(ctx, key, clientv3.WithRev(1))
	return seen.Err()
}

// subcommand is the position of the last word of the command's name, 0 for those of one word.
func subcommand(words []string) int {
	switch words[0] {
	case "lease", "alarm", "endpoint", "member", "auth", "user", "role", "snapshot", "check", "downgrade":
		if len(words) > 1 && !strings.HasPrefix(words[1], "-") {
			return 1
		}
	}
	return 0
}

// taken makes the outputs comparable, and notes the ids of leases.
func (s *side) taken(words []string, format, stdout, stderr string, exit int) result {
	if len(words) > 1 && words[0] == "lease" && words[1] == "grant" && exit == 0 {
		if found := granted.FindStringSubmatch(stdout); found != nil {
			id := found[1]
			if id == "" {
				var number uint64
				_, _ = fmt.Sscan(found[2]+found[3], &number)
				id = fmt.Sprintf("%x", number)
			}
			s.leases = append(s.leases, id)
		}
	}
	if format == "protobuf" {
		stdout = asJSON(words[0], stdout)
	}
	stdout = s.names.normal(stdout, format)
	if len(words) > 1 && words[0] == "endpoint" && words[1] == "status" {
		stdout = statusCells(stdout)
	}
	return result{stdout: stdout, stderr: s.names.normal(stderr, format), exit: exit}
}
