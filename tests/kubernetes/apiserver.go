// One kube-apiserver: its process, its log, and clients of it.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sternpost/tests/etcd/servers"
)

// readyLimit bounds the time from the start of an apiserver until it is ready.
const readyLimit = 2 * time.Minute

// apiserver is a process and what is needed to start it again at the same address.
type apiserver struct {
	name    string
	admin   *api // may do everything
	limited *api // may do what a check grants to the user "limited"
	version string
	logPath string

	args  []string
	env   []string
	cmd   *exec.Cmd
	ended chan struct{}
}

func newApiserver(c *cluster, name string, flags []string) (*apiserver, error) {
	address, err := servers.FreePort()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	p := c.world.pki
	s := &apiserver{name: name, env: c.env, logPath: filepath.Join(c.dir, name+".log")}
	s.admin = newAPI(name, "https://"+address, p.clientConfig("admin"))
	s.limited = newAPI(name+" as limited", "https://"+address, p.clientConfig("limited"))
	s.args = append(s.args, c.store.flags...)
	s.args = append(s.args,
		"--bind-address=127.0.0.1", "--secure-port="+port,
		// Told to others, who must not find a loopback address; nothing listens there.
		fmt.Sprintf("--advertise-address=192.0.2.%d", len(c.servers)+1),
		"--cert-dir="+c.dir, "--tls-cert-file="+p.path("server.crt"), "--tls-private-key-file="+p.path("server.key"),
		"--client-ca-file="+p.path("ca.crt"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+p.path("accounts.pub"), "--service-account-signing-key-file="+p.path("accounts.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		// Nobody here makes the accounts that it would ask for.
		"--disable-admission-plugins=ServiceAccount",
	)
	s.args = append(s.args, flags...)
	return s, nil
}

// run starts the process and returns once it is ready.
func (s *apiserver) run(ctx context.Context) error {
	binary := os.Getenv("APISERVER_BINARY")
	if binary == "" {
		return fmt.Errorf("APISERVER_BINARY is not set: start this through tests/kubernetes/run")
	}
	log, err := os.OpenFile(s.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, ended := exec.Command(binary, s.args...), make(chan struct{})
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), s.env...)
	// A killed judge leaves no server behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	s.cmd, s.ended = cmd, ended
	return s.awaitReady(ctx)
}

func (s *apiserver) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for last := ""; ; {
		switch answer, err := s.admin.send(ctx, "GET", "/readyz?verbose", nil); {
		case err != nil:
			last = err.Error()
		case answer.code == 200:
			answer, err := s.admin.send(ctx, "GET", "/version", nil)
			if err == nil {
				s.version = answer.body.text("gitVersion")
			}
			return err
		default:
			last = string(answer.raw)
		}
		select {
		case <-s.ended:
			return fmt.Errorf("%s ended during its start\n%s", s.name, tail(s.logPath))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready within %v: %s\n%s", s.name, readyLimit, last, tail(s.logPath))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// alive is false once the process has ended.
func (s *apiserver) alive() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// kill ends the process and returns when it is gone.
func (s *apiserver) kill() {
	if s.alive() {
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// logged counts the lines of the log that contain the text.
func (s *apiserver) logged(text string) (int, error) {
	log, err := os.ReadFile(s.logPath)
	if err != nil {
		return 0, err
	}
	count := 0
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, text) {
			count++
		}
	}
	return count, nil
}

// metric adds up what /metrics says under the name, over all labels that contain each of the texts.
func (s *apiserver) metric(ctx context.Context, name string, labels ...string) (float64, error) {
	answer, err := s.admin.send(ctx, "GET", "/metrics", nil)
	if err != nil {
		return 0, err
	}
	return sumMetric(string(answer.raw), name, labels)
}

// tail is the end of a log.
func tail(path string) string {
	const most = 6000
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}
